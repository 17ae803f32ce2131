"""What stands before requests and responses.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import int16, int32, string
from dohle.protocol.schema import Header


class RequestHeader(Header, versions="0-2", flexible="2+"):
    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable=True, ignorable=True, compact=False)


class ResponseHeader(Header, versions="0-1", flexible="1+"):
    correlation_id: int = int32("0+")
