"""A transaction as the request of a client describes it, and whom to ask about it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicPartition, TransactionalId

_PRODUCE_ABORTABLE, _PRODUCE_ADDS = 11, 12
_OFFSETS_ABORTABLE, _OFFSETS_ADDS = 4, 5


class ClientSupport(Enum):
    """What a transactional client understands, by the version of its request."""

    OLD_ERRORS = "old_errors"
    """It does not know TRANSACTION_ABORTABLE."""
    ABORTABLE = "abortable"
    ADDS_PARTITIONS = "adds_partitions"
    """Transactions v2: the partition joins the transaction with the request that writes to it."""

    @classmethod
    def of_produce(cls, version: int) -> ClientSupport:
        """Tell what a producer understands."""
        return cls._of(version, _PRODUCE_ABORTABLE, _PRODUCE_ADDS)

    @classmethod
    def of_offset_commit(cls, version: int) -> ClientSupport:
        """Tell what a client of TxnOffsetCommit understands."""
        return cls._of(version, _OFFSETS_ABORTABLE, _OFFSETS_ADDS)

    @classmethod
    def _of(cls, version: int, abortable: int, adds: int) -> ClientSupport:
        if version >= adds:
            return cls.ADDS_PARTITIONS
        return cls.ABORTABLE if version >= abortable else cls.OLD_ERRORS


class TransactionClaim(NamedTuple):
    """A transaction as a request describes it."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int
    support: ClientSupport


class Question(NamedTuple):
    """Whether partitions may take records of a transaction."""

    transaction: TransactionClaim
    partitions: tuple[TopicPartition, ...]
    #: Gets the errors of single partitions, or a KafkaError for all.
    answer: Future[Mapping[TopicPartition, ErrorCode]]

    def refuse(self, error: KafkaError) -> None:
        """Answer with an error, if anybody still waits."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def reply(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Answer, if anybody still waits."""
        if not self.answer.done():
            self.answer.set_result(errors)


class TransactionCoordinators(Protocol):
    """The way to the transaction coordinators."""

    async def add_or_verify(
        self, transaction: TransactionClaim, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add partitions to a transaction, or verify that they are part of it.

        Returns the errors of single partitions; raises KafkaError if it failed for all of them.
        """
