"""Random appends against a model that keeps everything and forgets nothing by design."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId
from dohle.records.batch import Batch
from dohle.records.control import TxnMarker, parse_txn_marker
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.producers.state import AppendPlan, ProducerState
from dohle.storage.segment.transaction_index import AbortedTransaction
from tests.storage.producers.producer_partition import (
    CLIENT,
    COORDINATOR,
    NOW_MS,
    REPLICATION,
    Partition,
    data,
    marker,
    plain,
)

SEQUENCE_MAX = 2**31 - 1
SEQUENCES = SEQUENCE_MAX + 1


def marker_of(batch: Batch) -> TxnMarker:
    return parse_txn_marker(next(iter(batch)))


@dataclass
class ModelProducer:
    """A producer as the rules tell of it."""

    epoch: int
    coordinator_epoch: int = -1
    #: (first sequence, count, first offset) of each batch of this epoch.
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    txn_first_offset: int | None = None

    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        first, count, _ = self.batches[-1]
        return (first + count) % SEQUENCES


@dataclass
class Model:
    """A leader's partition: what it accepts, and which transactions it has seen."""

    producers: dict[int, ModelProducer] = field(default_factory=dict)
    log: list[Batch] = field(default_factory=list)
    end: int = 0
    #: (first offset, marker offset) of completed transactions.
    completed: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def expected(self, batch: Batch, version: int) -> ErrorCode | int | None:
        """What happens: an error, the first offset of a duplicate, or None for an append."""
        known = self.producers.get(batch.producer_id)
        if known is None:
            return None
        epoch = batch.producer_epoch
        if batch.is_control:
            again = epoch == known.epoch and known.txn_first_offset is None
            if epoch < known.epoch or (version == 2 and epoch == known.epoch and not again):
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if marker_of(batch).coordinator_epoch < known.coordinator_epoch:
                return ErrorCode.TRANSACTION_COORDINATOR_FENCED
            return None
        count = batch.next_offset - batch.base_offset
        for first, known_count, offset in known.batches[-5:]:
            if (epoch, batch.base_sequence, count) == (known.epoch, first, known_count):
                return offset
        if epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        wanted = known.next_sequence() if epoch == known.epoch else 0
        if batch.base_sequence != wanted:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if known.txn_first_offset is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def append(self, batch: Batch) -> None:
        self.log.append(batch)
        self.end = batch.next_offset
        if batch.producer_id < 0:
            return
        known = self.producers.setdefault(batch.producer_id, ModelProducer(batch.producer_epoch))
        if batch.producer_epoch != known.epoch:
            known.epoch = batch.producer_epoch
            known.batches = []
        if batch.is_control:
            known.coordinator_epoch = marker_of(batch).coordinator_epoch
            start, known.txn_first_offset = known.txn_first_offset, None
            if start is not None:
                end = batch.base_offset
                self.completed.append((start, end))
                if not marker_of(batch).is_commit:
                    stable = min([*self.open_since(), end + 1])
                    pid = ProducerId(batch.producer_id)
                    self.aborted.append(AbortedTransaction(pid, start, end, stable))
            return
        count = batch.next_offset - batch.base_offset
        known.batches.append((batch.base_sequence, count, batch.base_offset))
        if batch.is_transactional and known.txn_first_offset is None:
            known.txn_first_offset = batch.base_offset

    def open_since(self) -> list[int]:
        starts = (known.txn_first_offset for known in self.producers.values())
        return sorted(start for start in starts if start is not None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        unreplicated = [start for start, end in self.completed if end >= high_watermark]
        return min(self.open_since() + unreplicated, default=None)


class Kind(Enum):
    DATA = 0
    AGAIN = 1
    MARKER = 2
    PLAIN = 3


class Step(NamedTuple):
    """One append: mostly right, and wrong in every way now and then."""

    kind: Kind
    pid: int
    epoch_shift: int
    sequence_shift: int
    first_sequence: int
    records: int
    transactional: bool
    commit: bool
    coordinator_epoch: int
    version: int
    pick: int
    high_watermark_lag: int
    snapshot: bool

    def batch(self, model: Model) -> Batch:
        pid, end = self.pid, model.end
        known = model.producers.get(pid)
        epoch = max(0, self.epoch_shift + (known.epoch if known else 1))
        if self.kind is Kind.PLAIN:
            return plain(end, self.records)
        if self.kind is Kind.MARKER:
            return marker(
                end,
                commit=self.commit,
                pid=pid,
                epoch=epoch,
                coordinator_epoch=self.coordinator_epoch,
            )
        count, sequence = self.records, self.first_sequence
        if self.kind is Kind.AGAIN and known and known.batches:
            sequence, count, _ = known.batches[-1 - self.pick % len(known.batches)]
        elif known is not None:
            expected = known.next_sequence() if epoch == known.epoch else 0
            sequence = (expected + self.sequence_shift) % SEQUENCES
        return data(end, sequence, count, pid=pid, epoch=epoch, transactional=self.transactional)


STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from([Kind.DATA, Kind.DATA, *Kind]),
        pid=st.integers(1, 3),
        epoch_shift=st.sampled_from([0, 0, 0, 0, 1, -1]),
        sequence_shift=st.sampled_from([0, 0, 0, 0, 1, -1]),
        first_sequence=st.sampled_from([0, 7, SEQUENCE_MAX - 3, SEQUENCE_MAX]),
        records=st.integers(1, 4),
        transactional=st.booleans(),
        commit=st.booleans(),
        coordinator_epoch=st.integers(0, 2),
        version=st.sampled_from([0, 2]),
        pick=st.integers(0, 6),
        high_watermark_lag=st.integers(0, 12),
        snapshot=st.booleans(),
    ),
    min_size=8,
    max_size=40,
)


def try_append(partition: Partition, batch: Batch, version: int) -> AppendPlan | ErrorCode:
    origin = COORDINATOR if batch.is_control else CLIENT
    try:
        return partition.append(batch, origin=origin, version=version, verify=False)
    except KafkaError as error:
        return error.code


def check_producers(state: ProducerState, model: Model) -> None:
    assert set(state.producers) == set(model.producers)
    for pid, known in model.producers.items():
        entry = state.producers[pid]
        assert entry.producer_epoch == known.epoch
        assert entry.coordinator_epoch == known.coordinator_epoch
        first_offset = -1 if known.txn_first_offset is None else known.txn_first_offset
        assert entry.current_txn_first_offset == first_offset
        assert [
            (batch.first_sequence, batch.offset_delta + 1, batch.first_offset)
            for batch in entry.batches
        ] == known.batches[-5:]


def lead(partition: Partition, steps: list[Step]) -> Model:
    """Append as a leader; the state and the model agree at every step."""
    # Guards have tests of their own; here every transaction is confirmed.
    partition.config.transaction_partition_verification_enable = False
    state = partition.state
    model = Model()
    high_watermark = 0
    for step in steps:
        batch = step.batch(model)
        expected = model.expected(batch, step.version)
        outcome = try_append(partition, batch, step.version)
        if isinstance(outcome, ErrorCode):
            assert outcome == expected
        elif outcome.duplicate is not None:
            assert outcome.duplicate.first_offset == expected
        else:
            assert expected is None
            model.append(batch)
        check_producers(state, model)
        assert state.map_end_offset == model.end
        assert partition.aborted == model.aborted
        assert state.first_undecided_offset == min(model.open_since(), default=None)
        high_watermark = max(high_watermark, model.end - step.high_watermark_lag)
        state.on_high_watermark_updated(high_watermark)
        assert state.first_unstable_offset == model.first_unstable_offset(high_watermark)
    return model


def replay_with_snapshots(partition: Partition, log: list[Batch], steps: list[Step]) -> None:
    for batch, step in zip(log, steps, strict=False):
        partition.state.replay(batch)
        if step.snapshot:
            partition.state.take_snapshot(sync=False)


EXAMPLES = settings(max_examples=80)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("partitions")


def new_partition(folder: Path) -> Partition:
    return Partition(mkdtemp(dir=folder))


@EXAMPLES
@given(steps=STEPS)
def test_a_leader_decides_as_the_model_does(folder: Path, steps: list[Step]) -> None:
    lead(new_partition(folder), steps)


@EXAMPLES
@given(steps=STEPS, sizes=st.lists(st.integers(1, 12), min_size=40, max_size=40))
def test_a_follower_knows_what_its_leader_knows(
    folder: Path, steps: list[Step], sizes: list[int]
) -> None:
    leader = new_partition(folder)
    model = lead(leader, steps)
    follower = new_partition(folder)
    rest = model.log
    for size in sizes:
        if rest:
            follower.append(*rest[:size], origin=REPLICATION)
        rest = rest[size:]
    assert follower.state.producers == leader.state.producers
    assert follower.aborted == leader.aborted
    assert follower.state.map_end_offset == leader.state.map_end_offset
    assert follower.state.first_undecided_offset == leader.state.first_undecided_offset
    assert follower.state.first_unstable_offset == model.first_unstable_offset(0)


def without_window(state: ProducerState) -> dict[int, ProducerEntry]:
    return {pid: entry._replace(batches=()) for pid, entry in state.producers.items()}


@EXAMPLES
@given(steps=STEPS)
def test_a_snapshot_and_the_rest_of_the_log_give_the_state_back(
    folder: Path, steps: list[Step]
) -> None:
    leader = new_partition(folder)
    model = lead(leader, steps)
    partition = new_partition(folder)
    replay_with_snapshots(partition, model.log, steps)

    state = partition.open()
    state.truncate_and_reload(0, model.end, NOW_MS)
    cut = state.map_end_offset
    behind = [batch for batch in model.log if batch.base_offset >= cut]
    aborted = [found for batch in behind if (found := state.replay(batch)) is not None]

    assert without_window(state) == without_window(leader.state)
    for pid, entry in state.producers.items():
        # Of the batches before the snapshot only the last one is known; the others are all there.
        everything = leader.state.producers[pid].batches
        before = [batch for batch in everything if batch.last_offset < cut]
        assert entry.batches == (*before[-1:], *everything[len(before) :])
    assert aborted == [found for found in leader.aborted if found.last_offset >= cut]
    assert state.map_end_offset == model.end
    assert state.first_undecided_offset == leader.state.first_undecided_offset


@EXAMPLES
@given(steps=STEPS, kept_batches=st.integers(0, 40))
def test_h18_a_truncated_log_has_the_state_of_one_that_never_was_longer(
    folder: Path, steps: list[Step], kept_batches: int
) -> None:
    model = lead(new_partition(folder), steps)
    partition = new_partition(folder)
    replay_with_snapshots(partition, model.log, steps)
    kept = model.log[:kept_batches]
    end = kept[-1].next_offset if kept else 0

    partition.state.truncate_and_reload(0, end, NOW_MS)
    assert all(offset <= end for offset in partition.snapshots())
    for batch in kept:
        if batch.base_offset >= partition.state.map_end_offset:
            partition.state.replay(batch)

    scratch = new_partition(folder)
    for batch in kept:
        scratch.state.replay(batch)
    assert partition.state.map_end_offset == end
    assert without_window(partition.state) == without_window(scratch.state)
    assert partition.state.first_undecided_offset == scratch.state.first_undecided_offset
