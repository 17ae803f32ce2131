"""What a command returns: the records to append, and the reply to send once they are committed.

The records of a decision are appended as one batch, which is what makes them atomic; only very many
that need not be (``is_atomic``) are appended as several. They are then replayed; nothing else
changes the image. A refused or validate-only command has no records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.protocol.schema import MetadataRecord

#: The most records that one request may lead to, as in Kafka: they must fit one batch.
RECORDS_PER_REQUEST_MAX = 10_000

R = TypeVar("R")


class VersionedRecord(NamedTuple):
    """A record and the version to write it in."""

    record: MetadataRecord
    version: int


class KraftUpgrade(NamedTuple):
    """The level to which the quorum is to raise itself, or only to tell whether it could."""

    level: int
    validate_only: bool


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """What to write and what to answer."""

    records: tuple[VersionedRecord, ...]
    reply: R
    #: Why it was refused, for the log, if the reply only has room for a code.
    reason: str | None = None
    #: What the quorum does with its own level before the records are written.
    kraft_version: KraftUpgrade | None = None
    #: Whether all records must be in one batch. If not, very many may be in several.
    is_atomic: bool = True


class ApiError(NamedTuple):
    """An error as responses show it: a code, and a message if that adds something."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @classmethod
    def of(cls, error: KafkaError) -> ApiError:
        """Return the code and message for an exception."""
        return cls(error.code, str(error.args[0]) or None)

    def exception(self) -> KafkaError:
        """Return an exception for the code and message."""
        return KafkaError(self.code, self.message or "")


NO_ERROR = ApiError()


def too_many_records() -> KafkaError:
    """Return the refusal of a request that would write more than fits a batch."""
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"The request needs more than {RECORDS_PER_REQUEST_MAX} metadata records. Split it up.",
    )
