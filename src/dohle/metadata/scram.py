"""AlterUserScramCredentials: passwords of users, as keys from which no password can be computed.

A client sends the salted password, never the password itself. Of each user all is done or nothing,
and told is what was wrong first, deletions before upsertions; what is all right in a request is
written as one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.image import ClusterImage, ScramKey
from dohle.metadata.metadata_version import supports_scram
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dohle.protocol.messages.records.cluster_metadata import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
_MECHANISMS: Final = (1, 2)

_Asked = ScramCredentialDeletion | ScramCredentialUpsertion
_Record = UserScramCredentialRecord | RemoveUserScramCredentialRecord
#: From mechanism and salted password to the stored key and the server's.
Keys = Callable[[int, bytes], tuple[bytes, bytes]]


def alter_user_scram_credentials(
    image: ClusterImage, request: AlterUserScramCredentialsRequest, keys: Keys
) -> Decision[AlterUserScramCredentialsResponse]:
    """Decide about the passwords of users."""
    if not supports_scram(image.metadata_version or 0):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current metadata.version does not support SCRAM credentials.",
        )
    done: dict[str, _Record] = {}
    failed: dict[str, KafkaError] = {}
    asked: list[_Asked] = [*request.deletions, *request.upsertions]
    for each in asked:
        if each.name in failed:
            continue
        try:
            if done.pop(each.name, None):
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            done[each.name] = _record(image, each, keys)
        except KafkaError as error:
            failed[each.name] = error
    results = [AlterUserScramCredentialsResult(user=name, error_message=None) for name in done]
    results += [
        AlterUserScramCredentialsResult(
            user=name, error_code=error.code, error_message=str(error.args[0])
        )
        for name, error in failed.items()
    ]
    records = tuple(VersionedRecord(record, 0) for record in done.values())
    return Decision(records, AlterUserScramCredentialsResponse(results=tuple(results)))


def _record(image: ClusterImage, asked: _Asked, keys: Keys) -> _Record:
    if not asked.name:
        raise _unacceptable("Username must not be empty")
    if asked.mechanism not in _MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(asked, ScramCredentialDeletion):
        if ScramKey(asked.mechanism, asked.name) not in image.scram_credentials:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return RemoveUserScramCredentialRecord(name=asked.name, mechanism=asked.mechanism)
    if asked.iterations < ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if asked.iterations > ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    if not asked.salted_password:
        raise _unacceptable("Salted password must not be empty")
    stored_key, server_key = keys(asked.mechanism, asked.salted_password)
    return UserScramCredentialRecord(
        name=asked.name,
        mechanism=asked.mechanism,
        salt=asked.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=asked.iterations,
    )


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
