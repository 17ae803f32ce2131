"""Deliberate defects of brokers and coordinators, each put in by replacing a function or two.

Ids M1 to M29 are those of the list of mutants that a checker of Kafka should know (4.6 of
checking.md). Rules M1 to M11 of replication.md are something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from dohle.client.errors import TimedOut
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.consumer import reconcile
from dohle.groups.consumer.group import ConsumerGroup
from dohle.metadata import alter_partition, brokers
from dohle.records.batch import Batch, RecordBatch
from dohle.replication.follower import ReplicaLog, Truncate
from dohle.replication.partition import Effects, PartitionReplication
from dohle.server.coordinators.shard import Due, Shard
from dohle.server.partitions import lookup
from dohle.server.partitions.commits import Commits
from dohle.server.partitions.fetch_reader import FetchReader
from dohle.server.partitions.partitions import Partition
from dohle.server.replicas import copying, fetcher
from dohle.storage import append_batches, log_truncation
from dohle.storage.log import Log
from dohle.storage.producers import state
from dohle.storage.producers.append import AppendOrigin, EndTransactionMarker
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.producers.open_transactions import OpenTransactions
from dohle.storage.producers.state import AppendPlan, ProducerState
from dohle.storage.segment.transaction_index import TransactionIndex
from dohle.txn import coordinator
from dohle.txn.end import end_tv2
from dohle.txn.state import TransactionState
from dohle.txn.transaction import ProducerIdAndEpoch, Transaction

Patch = pytest.MonkeyPatch


def m1_answers_before_the_commit(patch: Patch) -> None:
    def wait(self: Commits, partition: Partition, offset: int, ms: int, waiter: Any) -> None:
        waiter(ErrorCode.NONE)

    patch.setattr(Commits, "wait", wait)


def m2_high_watermark_is_the_log_end(patch: Patch) -> None:
    patch.setattr(PartitionReplication, "_replicated_end", lambda self, now_ms: self.log_end_offset)


def m3_high_watermark_of_a_majority(patch: Patch) -> None:
    def majority(self: PartitionReplication[Any], now_ms: int) -> int:
        ends = [each.log_end_offset for each in self._followers.values()]
        ends = sorted([*ends, self.log_end_offset], reverse=True)
        return ends[len(ends) // 2]

    patch.setattr(PartitionReplication, "_replicated_end", majority)


def m4_cut_to_the_high_watermark(patch: Patch) -> None:
    def beginning(log: ReplicaLog) -> Truncate | None:
        is_above = log.log_end_offset > log.high_watermark
        return Truncate(log.high_watermark) if is_above else None

    patch.setattr(fetcher, "beginning", beginning)


def m5_divergence_without_epochs(patch: Patch) -> None:
    patch.setattr(FetchReader, "_diverging_epoch", lambda self, partition, epoch, offset: None)


def m11_isr_is_shrunk_without_asking(patch: Patch) -> None:
    def check_lag(self: PartitionReplication[Any], now_ms: int) -> Effects[Any]:
        if not self.is_leader:
            return Effects()
        self.isr = self.maximal_isr = tuple(
            broker
            for broker in self.isr
            if (known := self._followers.get(broker)) is None
            or known.is_caught_up(self.log_end_offset, now_ms, self._lag_ms_max)
        )
        return self._advance(now_ms)

    patch.setattr(PartitionReplication, "check_lag", check_lag)


def m12_any_member_may_join(patch: Patch) -> None:
    patch.setattr(alter_partition, "_check_members", lambda image, members: None)
    patch.setattr(PartitionReplication, "_may_join", lambda self, broker, follower: True)


def m13_no_leader_epochs(patch: Patch) -> None:
    patch.setattr(Partition, "check_epoch", lambda self, asked: None)


def m14_anybody_answers_as_a_leader(patch: Patch) -> None:
    patch.setattr(lookup, "check_asker", lambda *about: None)


def m15_a_crash_counts_as_a_clean_stop(patch: Patch) -> None:
    after_former_life = brokers._after_former_life

    def taken_for_clean(image: Any, context: Any, broker_id: BrokerId, is_clean: bool) -> Any:
        return after_former_life(image, context, broker_id, True)

    patch.setattr(brokers, "_after_former_life", taken_for_clean)


def m16_open_transactions_are_read(patch: Patch) -> None:
    patch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def m16_markers_above_the_high_watermark_count(patch: Patch) -> None:
    patch.setattr(
        OpenTransactions,
        "first_unstable_offset",
        property(lambda self: self.first_undecided_offset),
    )


def m17_any_marker_is_taken(patch: Patch) -> None:
    def after_marker(
        entry: ProducerEntry, marker: EndTransactionMarker, *about: Any
    ) -> ProducerEntry:
        return entry.with_marker(marker.producer_epoch, marker.coordinator_epoch, marker.timestamp)

    patch.setattr(state, "after_marker", after_marker)


def m18_an_old_end_is_taken(patch: Patch) -> None:
    def end(
        transaction: Transaction, producer: ProducerIdAndEpoch, *about: Any, is_commit: bool
    ) -> Transaction | None:
        client = transaction.client
        is_old = producer.producer_id == client.producer_id and producer < client
        if is_old and transaction.state is TransactionState.ONGOING:
            producer = client
        return end_tv2(transaction, producer, *about, is_commit=is_commit)

    patch.setattr(coordinator, "end_tv2", end)


def m19_producers_stay_when_a_log_is_cut(patch: Patch) -> None:
    def keep(producers: ProducerState, segments: Any, start: int, end: int, now_ms: int) -> None:
        producers.map_end_offset = end

    patch.setattr(log_truncation, "rebuild_producer_state", keep)


def m20_only_the_last_batch_is_known_again(patch: Patch) -> None:
    find = ProducerEntry.find_duplicate

    def find_duplicate(self: ProducerEntry, batch: Batch) -> Any:
        return find(self._replace(batches=self.batches[-1:]), batch)

    patch.setattr(ProducerEntry, "find_duplicate", find_duplicate)


def m20_followers_know_no_producers(patch: Patch) -> None:
    validate = ProducerState.validate

    def without(
        self: ProducerState, found: Sequence[Batch], origin: AppendOrigin, **about: Any
    ) -> AppendPlan:
        plan = validate(self, found, origin, **about)
        is_copied = origin is AppendOrigin.REPLICATION
        return plan._replace(entries={}) if is_copied else plan

    patch.setattr(ProducerState, "validate", without)


def m21_aborted_transactions_are_not_noted(patch: Patch) -> None:
    patch.setattr(TransactionIndex, "append", lambda self, aborted: None)


def m22_anybody_commits_offsets(patch: Patch) -> None:
    for group in (ClassicGroup, ConsumerGroup):
        patch.setattr(group, "validate_offset_commit", lambda self, *about, **more: None)


def m23_coordinators_answer_before_the_commit(patch: Patch) -> None:
    def take_committed(self: Shard[Any]) -> list[Due]:
        return self.take_all()

    patch.setattr(Shard, "take_committed", take_committed)
    patch.setattr(Shard, "is_committed", lambda self, offset: True)


def m24_partitions_are_given_before_they_are_given_back(patch: Patch) -> None:
    patch.setattr(reconcile.Step, "_is_free", lambda self, topic_id, partition: True)


def m27_damage_on_the_way(patch: Patch) -> None:
    """No mutant: what a leader sends is damaged now and then, and must be asked for again."""
    append = copying.append_fetched
    count = 0

    def damaged(log: Log, records: memoryview, leader_epoch: int) -> None:
        nonlocal count
        count += 1
        if count % 10 == 0:
            copied = bytearray(records)
            copied[-2] ^= 1
            records = memoryview(copied)
        append(log, records, leader_epoch)

    patch.setattr(fetcher, "append_fetched", damaged)


def m27_followers_check_nothing(patch: Patch) -> None:
    m27_damage_on_the_way(patch)
    follower_batches = append_batches.follower_batches

    def unchecked(*about: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(RecordBatch, "ensure_valid", lambda self: None)
            return follower_batches(*about)

    patch.setattr("dohle.storage.log.follower_batches", unchecked)


def m28_answers_go_to_whoever_is_next(patch: Patch) -> None:
    on_frame = Connection._on_frame

    def on_timeout(self: Connection, correlation_id: int, timeout_ms: int) -> None:
        for waiting in list(self._waiting):
            if waiting.correlation_id == correlation_id:
                self._waiting.remove(waiting)
                self._slots.release()
                if not waiting.answer.done():
                    waiting.answer.set_exception(TimedOut("nobody answers"))

    def take(self: Connection, frame: Any) -> None:
        if self._waiting:
            first = self._waiting[0]
            correlation_id = int.from_bytes(bytes(frame[:4]))
            self._waiting[0] = replace(first, correlation_id=correlation_id)
        on_frame(self, frame)

    patch.setattr(Connection, "_on_frame", take)
    patch.setattr(Connection, "_on_timeout", on_timeout)


NODES = ("kill", "stop", "pause", "cut", "reset")
READERS = ("produce", "consume", "consume")
COPIES = ("produce", "transact", "copy", "copy")
LEDGERS = ("produce", "transact", "transact", "consume")


class Mutant(NamedTuple):
    """A defect, what shows it, and who finds it."""

    put_in: Callable[[Patch], None]
    kinds: tuple[str, ...]
    roles: tuple[str, ...]
    found_by: tuple[str, ...]
    delay_ms: float = 0.2


MUTANTS = {
    "M1": Mutant(m1_answers_before_the_commit, (), READERS, ("P16",)),
    "M2": Mutant(m2_high_watermark_is_the_log_end, (), READERS, ("P3",)),
    "M3": Mutant(m3_high_watermark_of_a_majority, ("pause", "cut"), READERS, ("P3",)),
    "M4": Mutant(m4_cut_to_the_high_watermark, NODES, READERS, ("P7", "P2", "P1")),
    "M5": Mutant(m5_divergence_without_epochs, ("cut", "pause"), READERS, ("P10", "P6", "P3")),
    "M11": Mutant(m11_isr_is_shrunk_without_asking, ("cut",), READERS, ("P4",)),
    "M12": Mutant(m12_any_member_may_join, ("kill", "stop", "pause"), READERS, ("P8", "P2")),
    "M16": Mutant(m16_open_transactions_are_read, (), LEDGERS, ("T4", "J3")),
    "M16, markers": Mutant(
        m16_markers_above_the_high_watermark_count, NODES, LEDGERS, ("T4", "P5")
    ),
    "M19": Mutant(m19_producers_stay_when_a_log_is_cut, NODES, LEDGERS, ("P13", "P14", "J2")),
    "M20": Mutant(
        m20_only_the_last_batch_is_known_again, ("reset",), ("produce",) * 3, ("J2", "J9"), 20
    ),
    "M20, followers": Mutant(m20_followers_know_no_producers, NODES, READERS, ("P13", "J2")),
    "M21": Mutant(m21_aborted_transactions_are_not_noted, NODES, LEDGERS, ("P14", "J3")),
    "M22": Mutant(m22_anybody_commits_offsets, ("client pause",), COPIES, ("G5", "T5", "G7")),
    "M23": Mutant(m23_coordinators_answer_before_the_commit, NODES, COPIES, ("G7", "T5", "G6")),
    "M24": Mutant(
        m24_partitions_are_given_before_they_are_given_back,
        ("client pause", "client kill"),
        ("produce", "join", "join", "join"),
        ("G1",),
    ),
    "M27": Mutant(m27_followers_check_nothing, (), READERS, ("P6",)),
    "M28": Mutant(
        m28_answers_go_to_whoever_is_next, ("pause", "client cut"), READERS, ("J", "P16")
    ),
}
