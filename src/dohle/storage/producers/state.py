"""A partition's producers: what makes an append idempotent, and what holds the last stable offset.

Kafka calls it the producer state manager. The log asks ``validate`` before it writes and calls
``commit`` with the answer once the batches, and the aborted transactions among them, are in their
files. Nothing changes in between, so a write that fails leaves the state as it was.

The state covers all batches below ``map_end_offset``. It is saved in snapshots at segment starts
and at the end of the log; loading takes the newest valid one and replays the log from there. After
a restart only the last batch of each producer before the snapshot is known: ``recall`` adds those
before it, should the producer send one of them again.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicPartition
from dohle.core.steps import PlainSteps
from dohle.records.batch import Batch, sequence_after
from dohle.records.checking.fast_check import FastCheckedBatch
from dohle.records.control import parse_txn_marker
from dohle.storage.files import FileSystem
from dohle.storage.producers.append import (
    NO_VERIFICATION,
    TV_UNKNOWN,
    AppendOrigin,
    EndTransactionMarker,
    VerificationGuard,
    VerificationState,
    after_data_batch,
    after_marker,
    check_verified,
)
from dohle.storage.producers.entry import BATCHES_RETAINED, BatchMetadata, ProducerEntry
from dohle.storage.producers.open_transactions import OpenTransactions, TransactionChanges
from dohle.storage.producers.snapshot_files import SnapshotFiles
from dohle.storage.segment.transaction_index import AbortedTransaction

__all__ = [
    "NO_VERIFICATION",
    "TV_UNKNOWN",
    "AppendOrigin",
    "AppendPlan",
    "BatchMetadata",
    "ProducerEntry",
    "ProducerState",
    "ProducerStateConfig",
    "VerificationGuard",
]

logger = logging.getLogger("dohle.storage")

#: How many producers are asked in one step whether they have expired.
_LOOKED_AT_IN_A_STEP = 500

# Unique in the process, so that a guard made before a partition was reopened proves nothing.
_guards = itertools.count(1)


@dataclass(slots=True)
class ProducerStateConfig:
    """Broker configs of the same names. One object serves all partitions and may change."""

    producer_id_expiration_ms: int = 86_400_000
    transaction_partition_verification_enable: bool = True


class AppendPlan(NamedTuple):
    """What an append will do to the state, or the batch that it repeats."""

    #: The offset behind the last batch.
    next_offset: int
    #: What was appended when this batch came before: answer with it and append nothing.
    duplicate: BatchMetadata | None = None
    entries: Mapping[int, ProducerEntry] = MappingProxyType({})
    transactions: TransactionChanges | None = None

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """What is added to the segment's transaction index before the plan is committed."""
        return self.transactions.aborted if self.transactions is not None else []


class ProducerState:
    """All producers of one partition."""

    __slots__ = (
        "_config",
        "_last_snapshot_offset",
        "_loaded_end",
        "_producers",
        "_recalled",
        "_verifications",
        "map_end_offset",
        "partition",
        "snapshots",
        "transactions",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        partition: TopicPartition,
        config: ProducerStateConfig,
        *,
        snapshot_offsets: Iterable[int] | None = None,
    ) -> None:
        self.partition = partition
        self._config = config
        #: The first offset whose batches are not in this state.
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        # Below this offset, batches are known by the snapshot that was loaded: one of a producer.
        self._loaded_end = 0
        self._producers: dict[int, ProducerEntry] = {}
        # The oldest batch of those producers for whose earlier ones the log has been searched.
        self._recalled: dict[int, BatchMetadata] = {}
        self._verifications: dict[int, VerificationState] = {}
        #: Those that hold the last stable offset back.
        self.transactions = OpenTransactions()
        self.snapshots = SnapshotFiles(fs, directory, partition, snapshot_offsets)

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """The active producers by id."""
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to know."""
        return not self._producers and not self.transactions.has_unreplicated

    # Appending

    def validate(
        self,
        batches: Iterable[Batch],
        origin: AppendOrigin,
        *,
        verification_guard: VerificationGuard = NO_VERIFICATION,
        transaction_version: int = TV_UNKNOWN,
    ) -> AppendPlan:
        """Check batches whose offsets are assigned; KafkaError if one may not be appended."""
        next_offset = self.map_end_offset
        is_client = origin is AppendOrigin.CLIENT
        entries: dict[int, ProducerEntry] = {}
        changes: TransactionChanges | None = None
        for batch in batches:
            next_offset = batch.next_offset
            producer_id = batch.producer_id
            if producer_id < 0:
                continue
            entry = entries.get(producer_id) or self._producers.get(producer_id)
            if entry is None:
                entry = ProducerEntry(ProducerId(producer_id))
            is_next = is_client and entry.follows(batch)
            if is_client and not is_next and (duplicate := entry.find_duplicate(batch)):
                return AppendPlan(self.map_end_offset, duplicate)
            if batch.is_transactional or batch.is_control:
                changes = changes or TransactionChanges()
                after = self._after_transactional(
                    entry, batch, origin, verification_guard, transaction_version, changes
                )
                if after is not entry:
                    entries[producer_id] = after
            else:
                entries[producer_id] = after_data_batch(
                    entry,
                    batch,
                    origin,
                    self.partition,
                    self._verifications.get(producer_id),
                    is_next=is_next,
                )
        return AppendPlan(next_offset, None, entries, changes)

    def forgot_before(self, batch: Batch) -> ProducerEntry | None:
        """Return the entry of a producer whose batch may be one that a snapshot did not keep.

        It has the known epoch and is older than all that are remembered, and those are too few, the
        oldest is from a snapshot, and it was not searched for yet. So whoever sends old batches
        again and again has the log searched once.
        """
        entry = self._producers.get(batch.producer_id)
        if (
            entry is None
            or batch.producer_epoch != entry.producer_epoch
            or not 0 < len(entry.batches) < BATCHES_RETAINED
        ):
            return None
        oldest = entry.batches[0]
        if oldest.last_offset >= self._loaded_end or oldest == self._recalled.get(
            batch.producer_id
        ):
            return None
        # Sequences go round: half of them lie before any of them.
        distance = (oldest.first_sequence - batch.base_sequence) & 0x7FFF_FFFF
        return entry if 0 < distance < 1 << 30 else None

    def recall(self, entry: ProducerEntry) -> None:
        """Know a producer by an entry that has those of its batches that the log has."""
        self._producers[entry.producer_id] = entry
        self._recalled[entry.producer_id] = entry.batches[0]

    def commit(self, plan: AppendPlan) -> None:
        """Apply a plan whose batches and aborted transactions are in their files."""
        if plan.duplicate is not None:
            raise ValueError("a duplicate is not appended")
        self._producers.update(plan.entries)
        self.map_end_offset = plan.next_offset
        changes = plan.transactions
        if changes is not None:
            self.transactions.apply(changes)
            for producer_id in changes.verified:
                self._verifications.pop(producer_id, None)

    def commit_fast_checked(self, batch: FastCheckedBatch, last_offset: int) -> bool:
        """Apply a fast-checked batch; False if it must take the slow path, ``validate``.

        It is applied if it has no producer id; or if it has its producer's next sequence, and is
        part of the transaction that is open here, or there is none open or being verified.
        """
        producer_id = batch.producer_id
        if producer_id >= 0:
            entry = self._producers.get(producer_id)
            if (
                entry is None
                or not entry.follows(batch)
                or (entry.current_txn_first_offset >= 0) is not batch.is_transactional
                or producer_id in self._verifications
            ):
                return False
            delta = batch.last_offset_delta
            self._producers[producer_id] = entry.with_batch(
                entry.producer_epoch,
                sequence_after(batch.base_sequence, delta),
                last_offset - delta,
                last_offset,
                batch.max_timestamp,
                entry.current_txn_first_offset,
            )
        self.map_end_offset = last_offset + 1
        return True

    def replay(self, batch: Batch) -> AbortedTransaction | None:
        """Take in a batch that is in the log already; return the transaction it aborts, if any."""
        plan = self.validate((batch,), AppendOrigin.REPLICATION)
        self.commit(plan)
        return plan.aborted[0] if plan.aborted else None

    def _after_transactional(
        self,
        entry: ProducerEntry,
        batch: Batch,
        origin: AppendOrigin,
        guard: VerificationGuard,
        transaction_version: int,
        changes: TransactionChanges,
    ) -> ProducerEntry:
        producer_id = entry.producer_id
        verification = self._verifications.get(producer_id)
        if origin is AppendOrigin.CLIENT or origin is AppendOrigin.COORDINATOR:
            verified = (
                not self._config.transaction_partition_verification_enable
                or NO_VERIFICATION != guard == self.verification_guard(producer_id)
            )
            check_verified(entry, batch, self.partition, verified=verified)
        if batch.is_control:
            marker = _marker_in(batch)
            if marker is None:
                # The cleaner has removed the marker together with its whole transaction.
                return entry
            after = after_marker(entry, marker, origin, self.partition, transaction_version)
            if entry.has_open_transaction:
                self._complete(entry, marker, changes)
        else:
            after = after_data_batch(entry, batch, origin, self.partition, verification)
            if not entry.has_open_transaction:
                changes.started[after.current_txn_first_offset] = producer_id
        if verification is not None:
            # A marker under transactions v2 has the epoch of the next transaction, which may
            # already be waiting for its verification.
            is_next_transaction = (
                batch.is_control
                and verification.supports_epoch_bump
                and batch.producer_epoch == verification.producer_epoch
            )
            if not is_next_transaction:
                changes.verified.append(producer_id)
        return after

    def _complete(
        self, entry: ProducerEntry, marker: EndTransactionMarker, changes: TransactionChanges
    ) -> None:
        first_offset = entry.current_txn_first_offset
        changes.completed[first_offset] = marker.offset
        if marker.is_abort:
            last_stable_offset = self.transactions.last_stable_offset(marker.offset, changes)
            changes.aborted.append(
                AbortedTransaction(
                    entry.producer_id, first_offset, marker.offset, last_stable_offset
                )
            )

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction began that is ongoing or unreplicated."""
        return self.transactions.first_unstable_offset

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest transaction began that has no marker yet."""
        return self.transactions.first_undecided_offset

    @property
    def oldest_transaction_timestamp(self) -> int | None:
        """When the producer of the oldest open transaction wrote last; None if none is open."""
        producer_id = next(iter(self.transactions.ongoing.values()), None)
        entry = None if producer_id is None else self._producers.get(producer_id)
        return None if entry is None else entry.last_timestamp

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forget the transactions whose markers are replicated."""
        self.transactions.markers_replicated_below(high_watermark)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Follow the log's start. Producers stay known, even if all their batches are gone."""
        self.transactions.markers_replicated_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Tell whether a producer has a transaction open here in this epoch."""
        entry = self._producers.get(producer_id)
        return (
            entry is not None
            and entry.producer_epoch == producer_epoch
            and entry.current_txn_first_offset >= 0
        )

    def start_transaction_verification(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        supports_epoch_bump: bool,
        now_ms: int,
    ) -> VerificationGuard:
        """Return the guard to append with once the coordinator has confirmed the transaction.

        It is NO_VERIFICATION if the transaction is open here: then there is nothing to ask.
        """
        entry = self._producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {producer_epoch} of producer {producer_id} in {self.partition} is too "
                f"old: epoch {entry.producer_epoch} has been seen",
            )
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return NO_VERIFICATION
        state = self._verifications.get(producer_id)
        if state is None:
            state = self._verifications[producer_id] = VerificationState(
                VerificationGuard(next(_guards)),
                now_ms,
                sequence,
                producer_epoch,
                supports_epoch_bump,
            )
        else:
            state.observe(sequence, producer_epoch)
        return state.guard

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        """Return the guard that the producer's next transaction waits with, if there is one."""
        state = self._verifications.get(producer_id)
        return NO_VERIFICATION if state is None else state.guard

    def remove_expired_producers(self, now_ms: int) -> PlainSteps[None]:
        """Forget producers that were idle for too long, and verifications that were not used.

        Done in steps, between which producers may come and go.
        """
        oldest_ms = now_ms - self._config.producer_id_expiration_ms
        for number, producer_id in enumerate(tuple(self._producers), 1):
            entry = self._producers.get(producer_id)
            if entry is not None and self._is_expired(entry, now_ms):
                del self._producers[producer_id]
                self._recalled.pop(producer_id, None)
            if number % _LOOKED_AT_IN_A_STEP == 0:
                yield
        for number, producer_id in enumerate(tuple(self._verifications), 1):
            state = self._verifications.get(producer_id)
            if state is not None and state.timestamp <= oldest_ms:
                del self._verifications[producer_id]
            if number % _LOOKED_AT_IN_A_STEP == 0:
                yield

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            not entry.has_open_transaction
            and now_ms - entry.last_timestamp >= self._config.producer_id_expiration_ms
        )

    # Snapshots

    def take_snapshot(self, *, sync: bool) -> str | None:
        """Write the state to a file; None if there is already one at this offset.

        Without ``sync`` the file and its name are synced by the next flush.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write(offset, self._producers.values(), sync=sync)
        self._last_snapshot_offset = offset
        return path

    def take_snapshot_soon(self, *, closing: bool = False) -> str | None:
        """Do as ``take_snapshot`` does, but leave the writing of many producers to the flush.

        When the log is closed, even the file is made by the flush.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write_soon(offset, self._producers.values(), closing=closing)
        self._last_snapshot_offset = offset
        return path

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Follow a log that now has just this range.

        Snapshots outside it are removed. If the end has moved, the state is loaded from the newest
        snapshot left, and the caller replays the log from ``map_end_offset``.
        """
        for offset in self.snapshots.offsets:
            if not log_start_offset < offset <= log_end_offset:
                self.snapshots.remove(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
        else:
            self._clear()
            self._load_snapshot(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, on disk too: the log is empty and goes on at this offset."""
        self._clear()
        for old in self.snapshots.offsets:
            self.snapshots.remove(old)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def restore(self, offset: int, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        """Take over the producers that another log knew at this offset, on disk too."""
        self.truncate_fully_and_start_at(offset)
        self.snapshots.write(offset, entries, sync=True)
        self._load_snapshot(offset, now_ms)

    def _clear(self) -> None:
        self._producers.clear()
        self._recalled.clear()
        self._loaded_end = 0
        self.transactions.load(())

    def _load_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        found = self.snapshots.read_newest()
        offset, loaded = (log_start_offset, ()) if found is None else found
        for entry in loaded:
            if not self._is_expired(entry, now_ms):
                self._producers[entry.producer_id] = entry
        self.transactions.load(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self._producers.values()
            if entry.has_open_transaction
        )
        self._last_snapshot_offset = self.map_end_offset = self._loaded_end = offset


def _marker_in(batch: Batch) -> EndTransactionMarker | None:
    for record in batch:
        marker = parse_txn_marker(record)
        return EndTransactionMarker(
            batch.base_offset,
            record.timestamp,
            batch.producer_epoch,
            marker.coordinator_epoch,
            not marker.is_commit,
        )
    return None
