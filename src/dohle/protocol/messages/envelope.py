"""Envelope, api key 58: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import binary, int16
from dohle.protocol.schema import Request, Response


class EnvelopeRequest(Request, api_key=58, versions="0", flexible="0+"):
    request_data: bytes = binary("0+")
    request_principal: bytes | None = binary("0+", nullable=True)
    client_host_address: bytes = binary("0+")


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = binary("0+", nullable=True, default=None)
    error_code: int = int16("0+")
