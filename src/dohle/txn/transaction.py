"""What the coordinator knows of one transactional id: a value, stored in one record.

Rules
- Everything is in the record: what a command decides and what a restart finds in the log are the
  same value.
- Producer epochs end at 32767. A producer never gets that one, so that it can still be fenced with
  a higher epoch; when 32766 is used up, it gets a new producer id at epoch 0.
- ``previous_producer_id`` is written only if the producer with the previous epoch may ask again:
  when its epoch was bumped (KIP-360), or it got another id. Kafka keeps that in memory only and
  fences such a producer after a fail-over.
- A transaction may be kept for a new incarnation of its producer (KIP-939). Then there are two
  identities: ``producer`` has written the records and its next epoch ends them; only ``client`` may
  decide the outcome. ``next_producer_epoch``, and with it ``next_producer_id``, marks such a
  transaction.
- Version 0 of the record (``transaction.version`` 0) has no fields for that, nor for TV2.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from dohle.core.ids import NO_PRODUCER_ID, ProducerId, TopicName, TopicPartition, TransactionalId
from dohle.protocol.messages.records.transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from dohle.protocol.record_framing import CoordinatorRecord
from dohle.txn.state import TransactionState, completed

#: The highest epoch; only the coordinator uses it, to fence a producer.
EPOCH_MAX = 2**15 - 1
#: The highest epoch that a producer gets.
LAST_EPOCH = EPOCH_MAX - 1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
#: From this transaction version on, a transaction's end bumps the producer's epoch (KIP-890).
TV_2 = 2
#: A transaction with this timeout never times out: an external coordinator decides its outcome.
NO_TIMEOUT_MS = 2**31 - 1

#: From this transaction version on, records are of version 1, which can be extended.
_FLEXIBLE_RECORDS = 1

T = TypeVar("T", bound="Transaction")


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer: an incarnation, and with TV2 one transaction of it."""

    producer_id: ProducerId
    producer_epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Incarnation(NamedTuple):
    """The answer to InitProducerId: the producer's identity, and that of the transaction to end."""

    producer: ProducerIdAndEpoch
    ongoing: ProducerIdAndEpoch = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id: its producer, and its newest transaction."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int
    state: TransactionState
    timeout_ms: int
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    #: The producer's id once the decided transaction is complete.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    #: And its epoch, if the transaction is kept for it; else the first epoch of the new id.
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    #: The protocol by which the newest transaction was begun or ended; 0 stands for 1 too.
    client_transaction_version: int = 0

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer of the newest transaction."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Tell whether the transaction has outlived its producer, and waits for its end."""
        return self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def client(self) -> ProducerIdAndEpoch:
        """The producer that may use the transactional id."""
        return self.next_producer if self.is_kept else self.producer

    @property
    def is_two_phase(self) -> bool:
        """Tell whether an external coordinator decides its outcome, without a timeout (KIP-939)."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def previous_producer(self) -> ProducerIdAndEpoch | None:
        """The producer's identity before its epoch was bumped, if it may not know of that yet."""
        if self.previous_producer_id not in (NO_PRODUCER_ID, self.producer_id):
            return ProducerIdAndEpoch(self.previous_producer_id, LAST_EPOCH)
        # That an end bumped the epoch follows from the version, which Kafka writes as well.
        was_bumped_at_end = self.client_transaction_version >= TV_2 and (
            self.state.is_decided or self.state.is_complete
        )
        was_bumped = was_bumped_at_end or self.previous_producer_id == self.producer_id
        if was_bumped and self.producer_epoch > 0:
            return ProducerIdAndEpoch(self.producer_id, self.producer_epoch - 1)
        return None

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer's identity once the decided transaction is complete."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_epoch_exhausted(self) -> bool:
        """Tell whether the producer has used up its epochs and needs another id."""
        return self.client.producer_epoch >= LAST_EPOCH

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Tell whether the id has been unused for long, and nothing is left to do for it."""
        is_idle = self.state is TransactionState.EMPTY or self.state.is_complete
        return is_idle and self.last_update_ms <= now_ms - expiration_ms

    # State changes. Fields that are not named stay.

    def updated_ms(self, now_ms: int) -> int:
        """Return the time of a change: it never goes back, though the clock may."""
        return max(now_ms, self.last_update_ms)

    def decided_ms(self, now_ms: int) -> int:
        """Return the time of a decision: no two decisions of a transactional id have the same."""
        return max(now_ms, self.last_update_ms + 1)

    def with_partitions(
        self, added: Collection[TopicPartition], now_ms: int, client_transaction_version: int
    ) -> Transaction:
        """Start a transaction, or add to the one that is open."""
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions.union(added),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=self.updated_ms(now_ms),
            previous_producer_id=NO_PRODUCER_ID,
            client_transaction_version=client_transaction_version,
        )

    def complete(self, now_ms: int) -> Transaction:
        """Return the transaction after all partitions have their marker."""
        if not self.state.is_decided:
            raise ValueError(f"{self.transactional_id} is in {self.state.shown}")
        producer = self.next_producer
        # The decision over a kept transaction says so; its own producer was replaced long ago.
        previous_producer_id = self.previous_producer_id if self.is_kept else NO_PRODUCER_ID
        if not self.is_kept and producer.producer_id != self.producer_id:
            previous_producer_id = self.producer_id
        return replace(
            self,
            state=completed(is_commit=self.state.is_commit),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            previous_producer_id=previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            partitions=frozenset(),
            last_update_ms=self.updated_ms(now_ms),
        )

    # Records

    def to_record(self, transaction_version: int) -> CoordinatorRecord:
        """Return the record of this value."""
        is_flexible = transaction_version >= _FLEXIBLE_RECORDS
        extensions: dict[str, Any] = {}
        if is_flexible:
            extensions = {
                "previous_producer_id": self.previous_producer_id,
                "next_producer_id": self.next_producer_id,
                "next_producer_epoch": self.next_producer_epoch,
                "client_transaction_version": self.client_transaction_version,
            }
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=(
                None if self.state is TransactionState.EMPTY else _by_topic(self.partitions)
            ),
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            **extensions,
        )
        return CoordinatorRecord(
            TransactionLogKey(transactional_id=self.transactional_id), value, int(is_flexible)
        )

    @classmethod
    def from_record(
        cls: type[T], transactional_id: TransactionalId, value: TransactionLogValue
    ) -> T:
        """Decode a record."""
        return cls(
            transactional_id=transactional_id,
            producer_id=ProducerId(value.producer_id),
            producer_epoch=value.producer_epoch,
            state=TransactionState(value.transaction_status),
            timeout_ms=value.transaction_timeout_ms,
            last_update_ms=value.transaction_last_update_timestamp_ms,
            start_ms=value.transaction_start_timestamp_ms,
            partitions=frozenset(
                TopicPartition(TopicName(topic.topic), partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            previous_producer_id=ProducerId(value.previous_producer_id),
            next_producer_id=ProducerId(value.next_producer_id),
            next_producer_epoch=value.next_producer_epoch,
            client_transaction_version=value.client_transaction_version,
        )


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that deletes a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id))


def _by_topic(partitions: Collection[TopicPartition]) -> tuple[PartitionsSchema, ...]:
    topics: dict[TopicName, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(ids)) for topic, ids in topics.items()
    )
