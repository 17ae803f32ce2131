"""AlterUserScramCredentials, api key 51: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, binary, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class ScramCredentialDeletion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Struct):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    salted_password: bytes = binary("0+")


class AlterUserScramCredentialsRequest(Request, api_key=51, versions="0", flexible="0+"):
    deletions: tuple[ScramCredentialDeletion, ...] = array(ScramCredentialDeletion, "0+")
    upsertions: tuple[ScramCredentialUpsertion, ...] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    results: tuple[AlterUserScramCredentialsResult, ...] = array(
        AlterUserScramCredentialsResult, "0+"
    )
