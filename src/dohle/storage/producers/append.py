"""The rules by which a partition accepts a producer's batch (KIP-98, 360 and 890).

- An epoch below the known one is refused: the producer was fenced.
- Within an epoch sequences follow each other without a gap; a new epoch starts at 0. An unknown
  producer may start anywhere, because its state may have expired; but with transactions v2 it would
  have bumped its epoch, so it must start at 0.
- While a transaction is open, its producer must not write outside it.
- A marker's epoch must not be below the known one. Under transactions v2 the coordinator bumps the
  epoch before it writes the marker, so it must be above, unless no transaction is open: then it is
  the same marker sent again.
- A marker of an older coordinator is refused.

What comes from the leader was checked there: a follower logs what looks wrong, and accepts it.
These functions take values and return values; nothing is changed here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NewType

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition
from dohle.records.batch import Batch, sequence_after
from dohle.storage.producers.entry import NO_EPOCH, ProducerEntry

logger = logging.getLogger("dohle.storage")

#: The transaction version is not known. For a marker it must be.
TV_UNKNOWN = -1

#: Proof that the coordinator knows a transaction: made at its start, presented by its first append.
VerificationGuard = NewType("VerificationGuard", int)

#: The guard of an append without verification; it proves nothing.
NO_VERIFICATION = VerificationGuard(0)


class AppendOrigin(Enum):
    """Where an append comes from, which decides what is checked."""

    CLIENT = "client"
    """Everything is checked."""
    COORDINATOR = "coordinator"
    """Group offsets and markers: epochs are checked, sequences do not exist."""
    REPLICATION = "replication"
    """The leader has checked."""
    RAFT_LEADER = "raft_leader"
    """The quorum's leader, which has assigned the offsets itself."""
    RAFT_FOLLOWER = "raft_follower"
    """A node that follows the quorum's leader, which has checked."""


# Looking up a member of an enum costs more than a comparison with one.
_CLIENT = AppendOrigin.CLIENT
_REPLICATION = AppendOrigin.REPLICATION


class EndTransactionMarker(NamedTuple):
    """A commit or abort marker as it is in the log."""

    offset: int
    timestamp: int
    producer_epoch: int
    coordinator_epoch: int
    is_abort: bool


@dataclass(slots=True)
class VerificationState:
    """A transaction's first append here, while the coordinator is asked about it (KIP-890).

    Batches that arrive meanwhile must not overtake each other: if a later one were written first,
    the earlier one would be refused for ever. So only the lowest sequence seen is accepted.
    """

    guard: VerificationGuard
    timestamp: int
    lowest_sequence: int
    producer_epoch: int
    supports_epoch_bump: bool

    def observe(self, sequence: int, producer_epoch: int) -> None:
        """Note another batch that waits; a new epoch starts with its own sequence."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


def after_data_batch(
    entry: ProducerEntry,
    batch: Batch,
    origin: AppendOrigin,
    partition: TopicPartition,
    verification: VerificationState | None,
    *,
    is_next: bool = False,
) -> ProducerEntry:
    """Return the producer's entry after a data batch; KafkaError if the batch is refused.

    ``is_next`` means that ``ProducerEntry.follows`` returned True for the batch.
    """
    epoch = batch.producer_epoch
    offset = batch.base_offset
    if epoch < entry.producer_epoch:
        _refuse_epoch(entry, epoch, offset, origin, partition)
    if origin is _CLIENT and not (is_next and verification is None):
        _check_sequence(entry, epoch, batch.base_sequence, offset, partition, verification)
    txn_first_offset = entry.current_txn_first_offset
    if batch.is_transactional:
        if txn_first_offset < 0:
            txn_first_offset = offset
    elif txn_first_offset >= 0:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {entry.producer_id} wrote outside its transaction at offset {offset} of "
            f"{partition}, which is open there since offset {txn_first_offset}",
        )
    return entry.with_batch(
        epoch,
        batch.last_sequence,
        offset,
        batch.last_offset,
        batch.max_timestamp,
        txn_first_offset,
    )


def after_marker(
    entry: ProducerEntry,
    marker: EndTransactionMarker,
    origin: AppendOrigin,
    partition: TopicPartition,
    transaction_version: int,
) -> ProducerEntry:
    """Return the producer's entry after a marker; KafkaError if the marker is refused."""
    if transaction_version == TV_UNKNOWN and origin is not _REPLICATION:
        raise ValueError("a marker can only be checked if its transaction version is given")
    epoch = marker.producer_epoch
    if transaction_version >= 2:
        sent_again = epoch == entry.producer_epoch and not entry.has_open_transaction
        stale = epoch <= entry.producer_epoch and not sent_again
    else:
        stale = epoch < entry.producer_epoch
    if stale:
        _refuse_epoch(entry, epoch, marker.offset, origin, partition)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        text = (
            f"the marker for producer {entry.producer_id} at offset {marker.offset} of {partition} "
            f"is from coordinator epoch {marker.coordinator_epoch}, but "
            f"{entry.coordinator_epoch} has been seen"
        )
        if origin is not _REPLICATION:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)
        logger.info("%s", text)
    return entry.with_marker(epoch, marker.coordinator_epoch, marker.timestamp)


def check_verified(
    entry: ProducerEntry,
    batch: Batch,
    partition: TopicPartition,
    *,
    verified: bool,
) -> None:
    """Accept a transactional batch if its transaction is open here, or verified to be ongoing.

    The epoch is checked first: a producer can recover from that error, but not from the other.
    """
    if entry.has_open_transaction and batch.producer_epoch == entry.producer_epoch:
        return
    if batch.producer_epoch < entry.producer_epoch:
        _refuse_epoch(
            entry, batch.producer_epoch, batch.base_offset, AppendOrigin.CLIENT, partition
        )
    if not verified and not batch.is_control:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"the batch of producer {entry.producer_id} is not part of a transaction that is "
            f"ongoing in {partition}",
        )


def _refuse_epoch(
    entry: ProducerEntry, epoch: int, offset: int, origin: AppendOrigin, partition: TopicPartition
) -> None:
    text = (
        f"epoch {epoch} of producer {entry.producer_id} at offset {offset} of {partition} is "
        f"too old: epoch {entry.producer_epoch} has been seen"
    )
    if origin is not _REPLICATION:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
    logger.warning("%s", text)


def _check_sequence(
    entry: ProducerEntry,
    epoch: int,
    sequence: int,
    offset: int,
    partition: TopicPartition,
    verification: VerificationState | None,
) -> None:
    if verification is not None:
        if verification.supports_epoch_bump and sequence != 0 and not entry.batches:
            _refuse_sequence(entry, sequence, 0, offset, partition)
        if sequence > verification.lowest_sequence:
            _refuse_sequence(entry, sequence, verification.lowest_sequence, offset, partition)
    known_epoch = entry.producer_epoch
    if known_epoch == NO_EPOCH:
        return
    expected = sequence_after(entry.last_sequence, 1) if epoch == known_epoch else 0
    if sequence != expected:
        _refuse_sequence(entry, sequence, expected, offset, partition)


def _refuse_sequence(
    entry: ProducerEntry, sequence: int, expected: int, offset: int, partition: TopicPartition
) -> None:
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {sequence} of producer {entry.producer_id} at offset {offset} of {partition} "
        f"is out of order: {expected} was expected",
    )
