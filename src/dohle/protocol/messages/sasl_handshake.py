"""SaslHandshake, api key 17: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, int16, string
from dohle.protocol.schema import Request, Response


class SaslHandshakeRequest(Request, api_key=17, versions="0-1", flexible="none"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Response, api_key=17, versions="0-1", flexible="none"):
    error_code: int = int16("0+")
    mechanisms: tuple[str, ...] = array(string, "0+")
