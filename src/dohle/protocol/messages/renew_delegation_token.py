"""RenewDelegationToken, api key 39: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import binary, int16, int32, int64
from dohle.protocol.schema import Request, Response


class RenewDelegationTokenRequest(Request, api_key=39, versions="0-2", flexible="2+"):
    hmac: bytes = binary("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Response, api_key=39, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
