"""A batch of records on its way to one partition, and the futures of its records.

A batch is open until it is full or taken to be sent. Its bytes are built when it is first sent and
resent unchanged, so that a broker can recognise a duplicate; only a new producer identity makes it
build them again. It has one outcome, which each of its records gets once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from dohle.core.errors import KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.records.batch import NO_SEQUENCE
from dohle.records.builder import BatchBuilder
from dohle.records.record import Header

NO_OFFSET = -1


class RecordMetadata(NamedTuple):
    """Where a record was written. The offset is -1 if no broker returned it, as with acks 0."""

    topic: TopicName
    partition: int
    offset: int
    timestamp: int


class ProducerIdentity(NamedTuple):
    """The identity of an idempotent producer: its id and epoch."""

    producer_id: ProducerId
    epoch: int


class ProducerBatch:
    """Records of one partition that travel together."""

    __slots__ = (
        "_encoded",
        "_futures",
        "_timestamps",
        "attempts",
        "builder",
        "created_ms",
        "done",
        "fate_unknown",
        "is_sealed",
        "memory",
        "ordinal",
        "partition",
        "retry_at_ms",
    )

    def __init__(
        self, partition: TopicPartition, builder: BatchBuilder, ordinal: int, created_ms: float
    ) -> None:
        self.partition = partition
        self.builder = builder
        #: Its position among the partition's batches.
        self.ordinal = ordinal
        self.created_ms = created_ms
        #: Set with the outcome; never to an error, so that nobody has to retrieve it.
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Its share of the producer's buffer.
        self.memory = 0
        self.attempts = 0
        self.retry_at_ms = 0.0
        self.is_sealed = False
        #: Whether a broker may have written it without acknowledging it.
        self.fate_unknown = False
        self._futures: list[asyncio.Future[RecordMetadata]] = []
        self._timestamps: list[int] = []
        self._encoded: bytearray | None = None

    @property
    def has_sequence(self) -> bool:
        """Whether it was given sequence numbers."""
        return self.builder.base_sequence != NO_SEQUENCE

    @property
    def record_count(self) -> int:
        """How many records it holds."""
        return self.builder.record_count

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header],
        memory: int,
    ) -> asyncio.Future[RecordMetadata]:
        """Add a record and return the future of its outcome."""
        assert not self.is_sealed, "a sealed batch takes no more records"
        self.builder.append(timestamp, key, value, headers)
        return self._promise(timestamp, memory)

    def seal_whole(self, memory: int) -> asyncio.Future[RecordMetadata]:
        """Close a batch that came filled; return the future of its first record."""
        self.is_sealed = True
        return self._promise(self.builder.max_timestamp, memory)

    def _promise(self, timestamp: int, memory: int) -> asyncio.Future[RecordMetadata]:
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        self._timestamps.append(timestamp)
        self.memory += memory
        return future

    def encoded(self) -> bytearray:
        """Return the batch's bytes."""
        self.is_sealed = True
        if self._encoded is None:
            self._encoded = self.builder.build()
        return self._encoded

    def set_sequence(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """Set its position in the sequence of an identity."""
        self.builder.producer_id, self.builder.producer_epoch = identity
        self.builder.base_sequence = base_sequence
        self._encoded = None

    def clear_sequence(self) -> None:
        """Remove its sequence numbers, since their identity is no longer used."""
        self.builder.base_sequence = NO_SEQUENCE
        self._encoded = None

    def succeed(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        """Report to all records where they were written."""
        topic, partition = self.partition
        for delta, future in enumerate(self._futures):
            if not future.done():
                offset = NO_OFFSET if base_offset < 0 else base_offset + delta
                timestamp = self._timestamps[delta]
                if log_append_time_ms >= 0:
                    timestamp = log_append_time_ms
                future.set_result(RecordMetadata(topic, partition, offset, timestamp))
        self._finish()

    def fail(self, error: KafkaError) -> None:
        """Report an error to all records."""
        for future in self._futures:
            if not future.done():
                future.set_exception(error)
                if self.builder.is_transactional:
                    # The end of the transaction reports it too: a future that is never awaited is
                    # no loss.
                    future.exception()
        self._finish()

    def _finish(self) -> None:
        self._futures = []
        if not self.done.done():
            self.done.set_result(None)
