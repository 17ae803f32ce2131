"""What a leader accepts: offsets at once, each change whole in one batch (R80, R81)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.messages.records.cluster_metadata import ConfigRecord, NoOpRecord
from dohle.protocol.record_framing import decode_metadata_record
from dohle.records.batch import read_batch
from dohle.server.quorum.accumulator import BATCH_BYTES_MAX, BatchAccumulator, QuorumBusy
from dohle.server.quorum.metadata_log import UnrecordableChange

EPOCH = 3
LINGER_MS = 25


class Leader:
    """An accumulator, and the end of the log behind it."""

    def __init__(self, end_offset: int = 100) -> None:
        self.clock = ManualClock(1_000)
        self.end_offset = end_offset
        self.accumulator = BatchAccumulator(self.clock, lambda: self.end_offset, lambda: None)
        self.accumulator.begin(EPOCH)

    def append(self, *sizes: int, epoch: int = EPOCH) -> int:
        return finish(self.accumulator.append(epoch, [config(size) for size in sizes]))


def config(size: int) -> VersionedRecord:
    return VersionedRecord(ConfigRecord(resource_type=2, name="n", value="x" * size), 0)


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from([1, 10, 32_000]), max_size=130), max_size=8))
def test_every_change_is_whole_in_one_batch_at_the_offsets_it_was_told(
    changes: list[list[int]],
) -> None:
    leader = Leader()
    ends = []
    for change in changes:
        first = leader.accumulator.next_offset
        assert leader.append(*change) == first + len(change) - 1
        ends.append(first + len(change))
    written: list[int] = []
    offset = leader.end_offset
    for data, batch in leader.accumulator.drain():
        found = read_batch(data)
        found.ensure_valid()
        assert len(data) == batch.size <= BATCH_BYTES_MAX
        records = [decode_metadata_record(record.value or b"") for record in found]
        assert records == list(batch.records)
        assert found.partition_leader_epoch == batch.epoch == EPOCH
        offset += len(records)
        assert batch.last_offset == offset - 1
        written.append(offset)
        assert offset in ends
    assert offset == (ends[-1] if ends else leader.end_offset)
    assert leader.accumulator.drain() == []


def test_small_changes_share_a_batch_until_the_linger_is_over() -> None:
    """R81; and all records of a batch have one timestamp (R65)."""
    leader = Leader()
    assert leader.accumulator.due_ms(LINGER_MS) is None
    leader.append(1)
    leader.clock.advance(20)
    leader.append(1, 1)
    assert leader.accumulator.due_ms(LINGER_MS) == 1_025
    assert leader.accumulator.due_ms(0) == 1_000
    (accepted,) = leader.accumulator.drain()
    assert [len(accepted.batch.records), accepted.batch.last_offset] == [3, 102]
    assert {record.timestamp for record in read_batch(accepted.data)} == {1_000}
    assert accepted.batch.timestamp == 1_000
    assert leader.accumulator.due_ms(LINGER_MS) is None


@settings(max_examples=30)
@given(st.lists(st.lists(st.sampled_from([1, 32_000]), min_size=1, max_size=130), max_size=6))
def test_batches_are_the_same_if_they_are_taken_one_by_one(changes: list[list[int]]) -> None:
    at_once, singly = Leader(), Leader()
    for change in changes:
        assert at_once.append(*change) == singly.append(*change)
    taken = []
    while batch := singly.accumulator.drain_one():
        (first,) = batch
        taken.append(first)
        before = singly.accumulator.next_offset
        singly.end_offset += len(first.batch.records)
        assert singly.accumulator.next_offset == before + len(first.batch.records)
    assert taken == at_once.accumulator.drain()
    assert singly.accumulator.due_ms(0) is None


def test_a_full_batch_is_due_at_once() -> None:
    leader = Leader()
    for _ in range(3):
        leader.append(*[32_000] * 90)
    due_ms = leader.accumulator.due_ms(LINGER_MS)
    assert due_ms is not None
    assert due_ms <= leader.clock.monotonic_ms()


def test_what_no_batch_can_hold_is_refused_and_leaves_nothing() -> None:
    leader = Leader()
    leader.append(1)
    with pytest.raises(UnrecordableChange, match="more than 8388608 bytes"):
        leader.append(*[32_000] * 300)
    assert leader.accumulator.next_offset == 101
    (accepted,) = leader.accumulator.drain()
    assert len(accepted.batch.records) == 1


def test_what_no_record_can_hold_is_refused() -> None:
    leader = Leader()
    with pytest.raises(UnrecordableChange, match="cannot be recorded"):
        leader.append(1, 40_000)
    assert leader.accumulator.next_offset == 100


def test_more_than_is_written_is_not_accepted() -> None:
    """R77."""
    leader = Leader()
    for _ in range(10):
        leader.append(*[1] * 200)
    for sizes in ([1], [1] * 200):
        with pytest.raises(QuorumBusy):
            leader.append(*sizes)
    assert leader.accumulator.next_offset == 100 + 10 * 200
    leader.accumulator.drain()
    leader.append(1)


def test_only_the_leader_of_the_epoch_is_accepted_from_also_if_that_ends_meanwhile() -> None:
    """R77, R78."""
    leader = Leader()
    with pytest.raises(KafkaError) as caught:
        leader.append(1, epoch=EPOCH - 1)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    leader.append(1)
    steps = leader.accumulator.append(EPOCH, [VersionedRecord(NoOpRecord(), 0)])
    next(steps)
    leader.accumulator.end()
    with pytest.raises(KafkaError) as caught:
        finish(steps)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert leader.accumulator.drain() == []
    assert leader.accumulator.next_offset == leader.end_offset
