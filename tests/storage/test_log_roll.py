from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.storage.config import LogConfig
from dohle.storage.log import Log
from dohle.storage.segment.index import OffsetPosition, TimestampOffset
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    PARTITION,
    Node,
    append,
    batch,
    data,
    log_batches,
    log_records,
    name_of,
    offsets,
    property_test,
)

HOUR_MS = 3_600_000


def bases(log: Log) -> list[int]:
    return list(log.segments.base_offsets)


# When


def test_a_segment_takes_as_many_bytes_as_segment_bytes_and_no_more() -> None:
    log = Node(LogConfig(segment_bytes=3 * BATCH_SIZE)).log
    for _ in range(7):
        append(log, data(2))
    assert bases(log) == [0, 6, 12]
    assert [segment.size for segment in log.segments] == [300, 300, 100]
    assert offsets(log_records(log)) == list(range(14))


def test_a_batch_that_does_not_fit_what_is_left_goes_to_a_new_segment() -> None:
    log = Node(LogConfig(segment_bytes=3 * BATCH_SIZE - 1)).log
    for _ in range(5):
        append(log, data(1))
    assert bases(log) == [0, 2, 4]


def test_the_files_of_a_segment_are_named_by_its_first_offset() -> None:
    node = Node(LogConfig(segment_bytes=BATCH_SIZE))
    append(node.log, data(3), data(2))
    assert node.names() == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000003.log",
        "00000000000000000003.index",
        "00000000000000000003.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }


def test_a_segment_is_rolled_by_the_distance_of_record_timestamps() -> None:
    log = Node(LogConfig(segment_ms=HOUR_MS)).log
    append(log, data(1, timestamp=NOW_MS))
    append(log, data(1, timestamp=NOW_MS + HOUR_MS))
    assert bases(log) == [0]
    append(log, data(1, timestamp=NOW_MS + HOUR_MS + 1))
    assert bases(log) == [0, 2]
    # The new segment counts from its own first batch.
    append(log, data(1, timestamp=NOW_MS + 2 * HOUR_MS + 1))
    assert bases(log) == [0, 2]
    append(log, data(1, timestamp=NOW_MS + 2 * HOUR_MS + 2))
    assert bases(log) == [0, 2, 4]


def test_the_clock_does_not_roll_a_segment_whose_records_have_timestamps() -> None:
    node = Node(LogConfig(segment_ms=HOUR_MS))
    append(node.log, data(1, timestamp=NOW_MS))
    node.clock.advance(1000 * HOUR_MS)
    append(node.log, data(1, timestamp=NOW_MS), data(1, timestamp=1))
    assert bases(node.log) == [0]


def test_the_clock_rolls_a_segment_whose_first_batch_has_no_timestamp() -> None:
    node = Node(LogConfig(segment_ms=HOUR_MS))
    append(node.log, data(1, timestamp=-1))
    node.clock.advance(HOUR_MS)
    append(node.log, data(1, timestamp=-1))
    assert bases(node.log) == [0]
    node.clock.advance(1)
    append(node.log, data(1, timestamp=-1))
    assert bases(node.log) == [0, 2]


def test_an_empty_segment_is_not_rolled_by_time() -> None:
    node = Node(LogConfig(segment_ms=HOUR_MS))
    assert bases(node.log) == [0]
    node.clock.advance(1000 * HOUR_MS)
    append(node.log, data(1, timestamp=NOW_MS + 1000 * HOUR_MS))
    assert bases(node.log) == [0]


@pytest.mark.parametrize("clean", [True, False])
def test_the_age_of_a_segment_outlives_a_restart(clean: bool) -> None:
    node = Node(LogConfig(segment_ms=HOUR_MS))
    append(node.log, data(1, timestamp=NOW_MS), data(1, timestamp=NOW_MS + HOUR_MS))
    log = node.restart(clean=clean)
    append(log, data(1, timestamp=NOW_MS + HOUR_MS + 1))
    assert bases(log) == [0, 2]


def test_a_full_time_index_rolls_the_segment_before_its_last_slot_is_needed() -> None:
    # Three time entries fit, and the last is kept for closing: two are full.
    node = Node(LogConfig(segment_index_bytes=36, index_interval_bytes=1))
    for number in range(7):
        append(node.log, data(1, timestamp=NOW_MS + number))
    assert bases(node.log) == [0, 3, 6]
    assert len(node.fs.read(node.path(name_of(0, ".timeindex")))) == 24
    assert [len(segment.indexes.offset) for segment in node.log.segments] == [2, 2, 0]


def test_a_full_offset_index_rolls_the_segment() -> None:
    # Four offset entries fit. The timestamp does not grow, so one time entry is all there is.
    node = Node(LogConfig(segment_index_bytes=36, index_interval_bytes=1))
    for _ in range(7):
        append(node.log, data(1))
    assert bases(node.log) == [0, 5]
    assert len(node.fs.read(node.path(name_of(0, ".index")))) == 32


def test_an_append_that_overfills_an_index_is_ended_in_its_segment() -> None:
    log = Node(LogConfig(segment_index_bytes=36, index_interval_bytes=1)).log
    sent = [data(1, timestamp=NOW_MS + n, base_offset=n, leader_epoch=1) for n in range(9)]
    log.append_as_follower(b"".join(sent[:8]), 1)
    assert bases(log) == [0]
    log.append_as_follower(sent[8], 1)
    assert bases(log) == [0, 8]
    assert offsets(log_records(log)) == list(range(9))
    assert len(log.segments.first.indexes.offset.entries()) == 7


def test_an_index_that_recovery_has_overfilled_rolls_the_segment() -> None:
    node = Node(LogConfig(index_interval_bytes=1))
    append(node.log, *[data(1, timestamp=NOW_MS + n) for n in range(6)])
    node.kill()
    node.config = LogConfig(segment_index_bytes=36, index_interval_bytes=1)
    node.start()
    append(node.log, data(1, timestamp=NOW_MS + 9))
    assert bases(node.log) == [0, 6]
    assert offsets(log_records(node.log)) == list(range(7))


def test_an_offset_too_far_from_the_base_rolls_the_segment() -> None:
    far = 2**31
    log = Node().log
    log.append_as_follower(data(1, base_offset=0, leader_epoch=1), 1)
    log.append_as_follower(data(2, base_offset=far - 2, leader_epoch=1), 1)
    assert bases(log) == [0]
    log.append_as_follower(data(1, base_offset=far, leader_epoch=1), 1)
    assert bases(log) == [0, far]
    assert offsets(log_records(log)) == [0, far - 2, far - 1, far]


def test_a_batch_that_only_ends_too_far_from_the_base_rolls_the_segment() -> None:
    log = Node().log
    log.append_as_follower(data(1, base_offset=0, leader_epoch=1), 1)
    log.append_as_follower(data(2, base_offset=2**31 - 1, leader_epoch=1), 1)
    # The new segment begins where the log ended: a gap between segments would be a sign of loss.
    assert bases(log) == [0, 1]


def test_a_segment_begins_at_its_first_batch_where_the_log_end_would_be_too_far_off() -> None:
    log = Node().log
    log.append_as_follower(data(1, base_offset=0, leader_epoch=1), 1)
    log.append_as_follower(data(2, base_offset=2**31, leader_epoch=1), 1)
    assert bases(log) == [0, 2**31]
    assert offsets(log_records(log)) == [0, 2**31, 2**31 + 1]


def test_jitter_rolls_a_segment_earlier_by_less_than_its_bound() -> None:
    jitter_max = 600_000
    node = Node(LogConfig(segment_ms=HOUR_MS, segment_jitter_ms=jitter_max))
    seen = set()
    timestamp = NOW_MS
    for _ in range(20):
        log = node.log
        jitter = log.segments.active.jitter_ms
        assert 0 <= jitter < jitter_max
        seen.add(jitter)
        count = len(log.segments)
        append(log, data(1, timestamp=timestamp))
        append(log, data(1, timestamp=timestamp + HOUR_MS - jitter))
        assert len(log.segments) == count
        timestamp += HOUR_MS - jitter + 1
        append(log, data(1, timestamp=timestamp))
        assert len(log.segments) == count + 1
    assert len(seen) > 10


def test_jitter_is_bounded_by_segment_ms() -> None:
    node = Node(LogConfig(segment_ms=1_000, segment_jitter_ms=HOUR_MS, segment_bytes=BATCH_SIZE))
    append(node.log, *[data(1) for _ in range(30)])
    assert all(0 <= segment.jitter_ms < 1_000 for segment in node.log.segments)


# Index entries


def expected_entries(
    log: Log, interval: int
) -> tuple[list[OffsetPosition], list[TimestampOffset], TimestampOffset]:
    """The entries of a log of one segment by Kafka's rule, and the pair that closing adds."""
    offset_entries: list[OffsetPosition] = []
    time_entries: list[TimestampOffset] = []
    top = TimestampOffset(-1, 0)
    position = since = 0
    for one in log_batches(log):
        if one.max_timestamp > top.timestamp:
            top = TimestampOffset(one.max_timestamp, one.last_offset)
        if since > interval:
            offset_entries.append(OffsetPosition(one.last_offset, position))
            if not time_entries or top.timestamp > time_entries[-1].timestamp:
                time_entries.append(top)
            since = 0
        since += one.size
        position += one.size
    return offset_entries, time_entries, top


@property_test()
@given(
    sent=st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 50), st.integers(0, 400)), min_size=1
    ),
    interval=st.sampled_from([0, 99, 300, 1000]),
    at_once=st.integers(1, 5),
)
def test_index_entries_are_where_kafka_puts_them(
    sent: list[tuple[int, int, int]], interval: int, at_once: int
) -> None:
    node = Node(LogConfig(index_interval_bytes=interval))
    log, offset = node.log, 0
    built = []
    for count, timestamp, size in sent:
        built.append(
            batch([timestamp] * count, value=bytes(size), base_offset=offset, leader_epoch=1)
        )
        offset += count
    # A follower gets several batches at once: the entries must be the same as for one by one.
    for start in range(0, len(built), at_once):
        log.append_as_follower(b"".join(built[start : start + at_once]), 1)
    offset_entries, time_entries, top = expected_entries(log, interval)
    segment = log.segments.active
    assert segment.indexes.offset.entries() == offset_entries
    assert segment.indexes.time.entries() == time_entries
    node.stop()
    if not time_entries or top.timestamp > time_entries[-1].timestamp:
        time_entries.append(top)
    assert node.files(".index", ".timeindex") == {
        name_of(0, ".index"): b"".join(struct.pack(">ii", *entry) for entry in offset_entries),
        name_of(0, ".timeindex"): b"".join(struct.pack(">qi", *entry) for entry in time_entries),
    }


def test_entries_of_a_later_segment_are_relative_to_its_base() -> None:
    node = Node(LogConfig(index_interval_bytes=100, segment_bytes=4 * BATCH_SIZE))
    append(node.log, *[data(2, timestamp=NOW_MS + n) for n in range(8)])
    assert bases(node.log) == [0, 8]
    # Batches of 100 bytes: more than 100 are counted before the third.
    assert node.log.segments.active.indexes.offset.entries() == [OffsetPosition(13, 200)]
    node.stop()
    assert node.files("8.index", "8.timeindex") == {
        name_of(8, ".index"): struct.pack(">ii", 5, 200),
        name_of(8, ".timeindex"): struct.pack(">qiqi", NOW_MS + 6, 5, NOW_MS + 7, 7),
    }


def test_a_rolled_segment_has_its_last_time_entry_and_nothing_spare() -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    append(node.log, data(2, timestamp=7), data(2, timestamp=5), data(1))
    assert node.files("0.index", "00.timeindex")[name_of(0, ".index")] == b""
    assert node.files(".timeindex") == {
        name_of(0, ".timeindex"): struct.pack(">qi", 7, 1),
        name_of(4, ".timeindex"): b"",
    }


# Flushing


def test_flush_messages_moves_the_recovery_point_when_so_many_are_unflushed() -> None:
    node = Node(LogConfig(flush_messages=3))
    log = node.log
    seen = []
    for count in (1, 1, 1, 2, 1, 4):
        append(log, data(count))
        seen.append(log.recovery_point)
    assert seen == [0, 0, 3, 3, 6, 10]


def test_what_flush_messages_flushed_survives_a_power_cut() -> None:
    node = Node(LogConfig(flush_messages=3, segment_bytes=2 * BATCH_SIZE))
    append(node.log, *[data(1) for _ in range(8)])
    assert node.log.recovery_point == 6
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert offsets(log_records(node.log))[:6] == list(range(6))


def test_flush_ms_asks_for_a_flush_of_everything() -> None:
    node = Node(LogConfig(flush_ms=1_000))
    append(node.log, data(2), data(2))
    node.clock.advance(999)
    assert node.manager.due_flushes() == []
    node.clock.advance(1)
    (due,) = node.manager.due_flushes()
    due.run()
    due.complete()
    assert node.log.recovery_point == 4
    assert node.manager.due_flushes() == []


def test_a_roll_asks_for_a_flush_of_the_closed_segments() -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    append(node.log, *[data(1) for _ in range(5)])
    assert node.log.recovery_point == 0
    (due,) = node.manager.due_flushes()
    due.run()
    due.complete()
    assert node.log.recovery_point == 4
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert offsets(log_records(node.log))[:4] == [0, 1, 2, 3]


def test_a_flush_that_a_truncation_overtook_moves_nothing() -> None:
    node = Node()
    append(node.log, data(1), data(1))
    job = node.log.prepare_flush()
    assert job is not None
    node.log.truncate_to(1)
    append(node.log, data(1))
    job.run()
    node.log.complete_flush(job)
    assert node.log.recovery_point <= 1


def test_a_flush_up_to_an_offset_goes_no_further() -> None:
    log = Node().log
    append(log, data(2), data(2))
    log.flush(2)
    assert log.recovery_point == 2
    log.flush(1)
    assert log.recovery_point == 2
    log.flush()
    assert log.recovery_point == 4


# Preallocation


def test_a_preallocated_file_is_cut_when_the_segment_is_rolled_and_when_the_log_is_closed() -> None:
    node = Node(LogConfig(preallocate=True, segment_bytes=250))
    append(node.log, data(1), data(1), data(1))
    assert node.log.size == 300
    assert {name: len(found) for name, found in node.files(".log").items()} == {
        name_of(0, ".log"): 200,
        name_of(2, ".log"): 250,
    }
    assert offsets(log_records(node.log)) == [0, 1, 2]
    node.stop()
    assert [len(found) for found in node.files(".log").values()] == [200, 100]
    node.start()
    append(node.log, data(1))
    assert offsets(log_records(node.log)) == [0, 1, 2, 3]


def test_the_zeros_of_a_preallocated_file_are_not_taken_for_records_after_a_kill() -> None:
    node = Node(LogConfig(preallocate=True, segment_bytes=1000))
    append(node.log, data(1), data(2))
    log = node.restart(clean=False)
    assert log.log_end_offset == 3
    assert log.size == 200
    assert offsets(log_records(log)) == [0, 1, 2]
    log.append_as_leader(data(1), LEADER_EPOCH)
    assert offsets(log_records(log)) == [0, 1, 2, 3]
    assert node.manager.get(PARTITION) is log
