from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId
from dohle.records.batch import Record, batches
from dohle.records.control import parse_txn_marker
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from dohle.storage.segment.transaction_index import AbortedTransaction
from tests.storage.logs import (
    LEADER_EPOCH,
    NOW_MS,
    Node,
    append,
    append_marker,
    append_transactional,
    batch,
    data,
    log_batches,
    name_of,
    property_test,
    refuses,
    state_of,
)

A, B, C = 11, 12, 13
COMMITTED = Isolation.TXN_COMMITTED


def replicate(log: Log) -> None:
    log.update_high_watermark(log.log_end_offset)


def aborted(pid: int, first: int, last: int, last_stable_offset: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(pid), first, last, last_stable_offset)


def index_entries(log: Log) -> list[AbortedTransaction]:
    return [entry for segment in log.segments for entry in segment.indexes.txn.entries()]


# The last stable offset


def test_an_open_transaction_holds_the_last_stable_offset_at_its_first_record() -> None:
    log = Node().log
    append(log, data(2))
    assert log.last_stable_offset == 2
    append_transactional(log, A, 0, 2)
    append(log, data(2))
    append_transactional(log, A, 2)
    replicate(log)
    assert log.last_stable_offset == 2
    assert log_read.read(log, 2, 1000, COMMITTED).slice is None
    assert log_read.read(log, 0, 1000, COMMITTED).size == 100


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_counts_once_it_is_below_the_high_watermark(commit: bool) -> None:
    log = Node().log
    append(log, data(3))
    append_transactional(log, A, 0, 2)
    marker_offset = append_marker(log, A, commit=commit).first_offset
    assert marker_offset == 5
    for high_watermark, last_stable_offset in [(2, 2), (3, 3), (4, 3), (5, 3), (6, 6)]:
        log.update_high_watermark(high_watermark)
        assert log.last_stable_offset == last_stable_offset


def test_the_oldest_of_several_open_transactions_holds_the_last_stable_offset() -> None:
    log = Node().log
    append_transactional(log, A, 0)  # 0
    append_transactional(log, B, 0)  # 1
    append_transactional(log, C, 0)  # 2
    append_marker(log, B, commit=True)  # 3
    replicate(log)
    assert log.last_stable_offset == 0
    append_marker(log, A, commit=False)  # 4
    replicate(log)
    assert log.last_stable_offset == 2
    append_marker(log, C, commit=True)  # 5
    replicate(log)
    assert log.last_stable_offset == 6


def test_the_last_stable_offset_is_not_below_the_log_start() -> None:
    log = Node().log
    append_transactional(log, A, 0, 2)
    append(log, data(3))
    log.increment_log_start_offset(4)
    assert log.last_stable_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_outlive_a_restart(clean: bool) -> None:
    node = Node(LogConfig(segment_bytes=250))
    append(node.log, data(1))
    append_transactional(node.log, A, 0, 2)
    append_transactional(node.log, B, 0)
    append_marker(node.log, B, commit=False)
    append(node.log, data(1), data(1))
    before = index_entries(node.log)
    log = node.restart(clean=clean)
    replicate(log)
    assert log.last_stable_offset == 1
    assert index_entries(log) == before == [aborted(B, 3, 4, 1)]
    # The transaction is still open here: its producer need not be verified again.
    append_transactional(log, A, 2)
    append_marker(log, A, commit=False)
    replicate(log)
    assert log.last_stable_offset == log.log_end_offset
    assert index_entries(log)[-1] == aborted(A, 1, 8, 9)


# What is refused


def test_a_transactional_batch_needs_a_transaction_that_was_verified() -> None:
    log = Node().log
    append(log, data(1))
    before = state_of(log)
    unverified = batch(pid=A, epoch=0, sequence=0, transactional=True)
    refuses(ErrorCode.INVALID_TXN_STATE, lambda: log.append_as_leader(unverified, LEADER_EPOCH))
    assert state_of(log) == before


def test_a_batch_outside_its_producers_open_transaction_is_refused() -> None:
    log = Node().log
    append_transactional(log, A, 0)
    before = state_of(log)
    outside = batch(pid=A, epoch=0, sequence=1)
    refuses(ErrorCode.INVALID_TXN_STATE, lambda: log.append_as_leader(outside, LEADER_EPOCH))
    assert state_of(log) == before


# The index of aborted transactions


def test_the_transaction_index_has_an_entry_for_each_abort_with_data_here() -> None:
    node = Node()
    log = node.log
    append_transactional(log, A, 0, 2)  # 0, 1
    append_transactional(log, B, 0)  # 2
    append_marker(log, A, commit=True)  # 3
    append_marker(log, C, commit=False)  # 4: no data of it is here
    assert name_of(0, ".txnindex") not in node.names()
    append_transactional(log, A, 2)  # 5
    append_marker(log, A, commit=False)  # 6: B is open since 2
    append_marker(log, B, commit=False)  # 7: nothing is open
    assert node.files(".txnindex") == {
        name_of(0, ".txnindex"): struct.pack(">hqqqq", 0, A, 5, 6, 2)
        + struct.pack(">hqqqq", 0, B, 2, 7, 8)
    }


def test_an_aborted_transaction_is_in_the_index_of_its_marker_s_segment() -> None:
    node = Node(LogConfig(segment_bytes=250))
    log = node.log
    append_transactional(log, A, 0)  # 0
    append(log, data(1), data(1), data(1))
    append_marker(log, A, commit=False)  # 4
    assert log.segments.base_offsets == (0, 2, 4)
    assert node.files(".txnindex") == {
        name_of(4, ".txnindex"): struct.pack(">hqqqq", 0, A, 0, 4, 5)
    }
    replicate(log)
    assert log_read.read(log, 0, 50, COMMITTED).aborted_transactions == [aborted(A, 0, 4, 5)]


def test_a_follower_writes_the_same_index_as_its_leader() -> None:
    leader, follower = Node(), Node()
    append_transactional(leader.log, A, 0, 2)
    append_transactional(leader.log, B, 0)
    append(leader.log, data(1))
    append_marker(leader.log, A, commit=False)
    append_transactional(leader.log, C, 0)
    append_marker(leader.log, C, commit=True)
    append_marker(leader.log, B, commit=False)
    content = b"".join(bytes(one.buffer) for one in log_batches(leader.log))
    follower.log.append_as_follower(content, LEADER_EPOCH)
    assert follower.files(".txnindex", ".log") == leader.files(".txnindex", ".log")
    for log in (leader.log, follower.log):
        replicate(log)
        assert log.last_stable_offset == log.log_end_offset


def test_truncation_takes_aborts_back() -> None:
    log = Node().log
    append_transactional(log, A, 0)  # 0
    append_marker(log, A, commit=False)  # 1
    append_transactional(log, A, 1)  # 2
    append_marker(log, A, commit=False)  # 3
    replicate(log)
    log.truncate_to(3)
    assert index_entries(log) == [aborted(A, 0, 1, 2)]
    replicate(log)
    assert log.last_stable_offset == 2
    append_marker(log, A, commit=True)
    replicate(log)
    assert log.last_stable_offset == 4
    assert index_entries(log) == [aborted(A, 0, 1, 2)]


def test_only_readers_of_committed_records_get_aborted_transactions() -> None:
    log = Node().log
    append_transactional(log, A, 0)
    append_marker(log, A, commit=False)
    replicate(log)
    assert log_read.read(log, 0, 1000, Isolation.HIGH_WATERMARK).aborted_transactions is None
    assert log_read.read(log, 0, 1000, Isolation.LOG_END).aborted_transactions is None
    assert log_read.read(log, 0, 1000, COMMITTED).aborted_transactions == [aborted(A, 0, 1, 2)]


# Any interleaving

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["data", "data", "plain", "commit", "abort"]), st.integers(1, 4)),
    max_size=60,
)


class Workload:
    """Producers that interleave; ``committed`` is what a reader of committed records must see."""

    def __init__(self, actions: list[tuple[str, int]]) -> None:
        self.node = Node(LogConfig(segment_bytes=500, index_interval_bytes=120))
        self.log = self.node.log
        self.committed: list[int] = []
        self.entries: list[AbortedTransaction] = []
        self._open: dict[int, list[int]] = {}
        self._sequences: dict[int, int] = {}
        for action, pid in actions:
            self._act(action, pid)
        replicate(self.log)
        self.committed.sort()

    def _act(self, action: str, pid: int) -> None:
        if action == "plain":
            self.committed.append(append(self.log, batch())[0].first_offset)
        elif action == "data":
            sequence = self._sequences.get(pid, 0)
            info = append_transactional(self.log, pid, sequence, 2)
            self._open.setdefault(pid, []).extend([info.first_offset, info.last_offset])
            self._sequences[pid] = sequence + 2
        else:
            marker_offset = append_marker(self.log, pid, commit=action == "commit").first_offset
            ended = self._open.pop(pid, [])
            if action == "commit":
                self.committed += ended
            elif ended:
                stable = min((found[0] for found in self._open.values()), default=marker_offset + 1)
                self.entries.append(aborted(pid, ended[0], marker_offset, stable))


def consume_committed(log: Log, offset: int, max_bytes: int) -> Iterator[Record]:
    """Read as a consumer does: skip the aborted, batch by batch (KIP-98)."""
    while True:
        found = log_read.read(log, offset, max_bytes, COMMITTED, min_one_batch=True)
        if found.slice is None:
            return
        assert found.aborted_transactions is not None
        waiting = sorted(found.aborted_transactions, key=lambda entry: entry.first_offset)
        skipped: set[int] = set()
        for one in batches(found.slice.read()):
            while waiting and waiting[0].first_offset <= one.last_offset:
                skipped.add(waiting.pop(0).producer_id)
            if one.is_control:
                if not parse_txn_marker(next(iter(one))).is_commit:
                    skipped.discard(one.producer_id)
            elif not (one.is_transactional and one.producer_id in skipped):
                yield from (record for record in one if record.offset >= offset)
            next_offset = one.next_offset
        offset = next_offset


@property_test(80)
@given(ACTIONS, st.sampled_from([1, 150, 400, 1 << 20]), st.booleans())
def test_a_reader_of_committed_records_sees_all_of_them_and_no_others(
    actions: list[tuple[str, int]], max_bytes: int, restarted: bool
) -> None:
    workload = Workload(actions)
    log = workload.log
    if restarted:
        log = workload.node.restart(clean=False)
        replicate(log)
    visible = [offset for offset in workload.committed if offset < log.last_stable_offset]
    for start in range(0, log.log_end_offset, 7):
        seen = [record.offset for record in consume_committed(log, start, max_bytes)]
        assert seen == [offset for offset in visible if offset >= start]


@property_test(80)
@given(ACTIONS, st.integers(1, 600))
def test_the_aborted_list_is_what_kafka_s_index_search_gives(
    actions: list[tuple[str, int]], max_bytes: int
) -> None:
    workload = Workload(actions)
    log = workload.log
    assert index_entries(log) == workload.entries
    for start in range(log.log_end_offset):
        found = log_read.read(log, start, max_bytes, COMMITTED)
        if found.slice is None:
            assert found.aborted_transactions == []
            continue
        segments = list(log.segments)
        number = max(n for n, s in enumerate(segments) if s.base_offset <= found.slice.base_offset)
        bases = [*log.segments.base_offsets, log.log_end_offset]
        end = found.slice.position + found.slice.size
        indexed = segments[number].indexes.offset.entries()
        upper = next((e.offset for e in indexed if e.position >= end), bases[number + 1])
        wanted = []
        for entry in workload.entries:
            if entry.last_offset >= start:
                if entry.first_offset < upper:
                    wanted.append(entry)
                if entry.last_stable_offset >= upper:
                    break
        assert found.aborted_transactions == wanted


def test_the_time_of_a_marker_is_its_producers_last_sign_of_life() -> None:
    log = Node().log
    append_transactional(log, A, 0)
    append_marker(log, A, commit=True)
    assert log.producer_state.producers[A].last_timestamp == NOW_MS
    assert not log.producer_state.has_ongoing_transaction(A, 0)
