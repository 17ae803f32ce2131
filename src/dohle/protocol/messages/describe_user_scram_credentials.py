"""DescribeUserScramCredentials, api key 50: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class UserName(Struct):
    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Request, api_key=50, versions="0", flexible="0+"):
    users: tuple[UserName, ...] | None = array(UserName, "0+", nullable=True)


class CredentialInfo(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


class DescribeUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo, "0+")


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    results: tuple[DescribeUserScramCredentialsResult, ...] = array(
        DescribeUserScramCredentialsResult, "0+"
    )
