"""DescribeDelegationToken, api key 41: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, binary, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribeDelegationTokenRequest(Request, api_key=41, versions="0-3", flexible="2+"):
    owners: tuple[DescribeDelegationTokenOwner, ...] | None = array(
        DescribeDelegationTokenOwner, "0+", nullable=True
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class DescribedDelegationToken(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+")
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = array(
        DescribedDelegationTokenRenewer, "0+"
    )


class DescribeDelegationTokenResponse(Response, api_key=41, versions="0-3", flexible="2+"):
    error_code: int = int16("0+")
    tokens: tuple[DescribedDelegationToken, ...] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")
