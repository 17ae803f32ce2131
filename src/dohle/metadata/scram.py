"""AlterUserScramCredentials: passwords of users, as keys from which no password can be computed.

A client sends the salted password, never the password itself. Of each user all is done or nothing;
what is all right in a request is written as one batch.
"""

from __future__ import annotations

from collections import Counter
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
    asked: list[_Asked] = [*request.deletions, *request.upsertions]
    counts = Counter(each.name for each in asked)
    records, results = [], []
    for each in {one.name: one for one in asked}.values():
        try:
            if counts[each.name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            records.append(VersionedRecord(_record(image, each, keys), 0))
        except KafkaError as error:
            results.append(
                AlterUserScramCredentialsResult(
                    user=each.name, error_code=error.code, error_message=str(error.args[0])
                )
            )
        else:
            results.append(AlterUserScramCredentialsResult(user=each.name, error_message=None))
    return Decision(tuple(records), AlterUserScramCredentialsResponse(results=tuple(results)))


def _record(
    image: ClusterImage, asked: _Asked, keys: Keys
) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
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
