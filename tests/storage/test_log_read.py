from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.records.batch import Batch, Codec, Record, batches
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.files import OsFileSystem
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from dohle.storage.segment.index import IndexMemory
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    PARTITION,
    Node,
    append,
    append_marker,
    append_transactional,
    batch,
    data,
    log_batches,
    log_records,
    property_test,
    refuses,
)

#: Batches as (records, value size, offsets left out before it).
SENT = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 150), st.sampled_from([0, 0, 0, 2])),
    min_size=1,
    max_size=25,
)


def log_of(sent: list[tuple[int, int, int]], config: LogConfig) -> Log:
    """A log as a follower of a compacted topic gets it: with gaps."""
    log, offset = Node(config).log, 0
    for count, size, gap in sent:
        offset += gap
        built = batch([NOW_MS] * count, value=bytes(size), base_offset=offset, leader_epoch=1)
        log.append_as_follower(built, 1)
        offset += count
    return log


SMALL = LogConfig(segment_bytes=700, index_interval_bytes=150)


# Where a read begins and ends


@property_test()
@given(SENT)
def test_any_offset_of_the_log_is_read_from_the_batch_that_holds_it(
    sent: list[tuple[int, int, int]],
) -> None:
    log = log_of(sent, SMALL)
    stored = log_batches(log)
    for offset in range(log.log_end_offset):
        wanted = next(one for one in stored if one.last_offset >= offset)
        found = log_read.read(log, offset, 1 << 20)
        assert found.slice is not None
        assert found.slice.base_offset == wanted.base_offset
        assert not found.first_batch_incomplete
        assert found.aborted_transactions is None
        first, *_ = batches(found.slice.read())
        assert bytes(first.buffer) == bytes(wanted.buffer)
    assert log_read.read(log, log.log_end_offset, 1 << 20).slice is None


@property_test()
@given(SENT, st.data())
def test_a_read_returns_as_many_bytes_as_allowed_up_to_the_segments_end(
    sent: list[tuple[int, int, int]], draw: st.DataObject
) -> None:
    log = log_of(sent, SMALL)
    start = draw.draw(st.integers(0, log.log_end_offset - 1))
    max_bytes = draw.draw(st.integers(0, 900))
    min_one = draw.draw(st.booleans())
    first = next(one for one in log_batches(log) if one.last_offset >= start)
    segment = next(s for s in reversed(list(log.segments)) if s.base_offset <= first.base_offset)
    content = segment.log_file.file.read_at(0, segment.size)
    rest = content[content.index(bytes(first.buffer)) :]
    limit = max(max_bytes, first.size) if min_one else max_bytes
    found = log_read.read(log, start, max_bytes, min_one_batch=min_one)
    assert found.size == min(limit, len(rest))
    assert found.first_batch_incomplete == (0 < limit < first.size)
    if found.slice is not None:
        assert found.slice.read() == rest[:limit]


@property_test()
@given(SENT, st.data())
def test_no_reader_sees_what_lies_above_its_bound(
    sent: list[tuple[int, int, int]], draw: st.DataObject
) -> None:
    log = log_of(sent, SMALL)
    bound = log.update_high_watermark(draw.draw(st.integers(0, log.log_end_offset)))
    visible = [one for one in log_batches(log) if one.last_offset < bound]
    for isolation in (Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED):
        seen: list[Batch] = []
        offset = 0
        while (piece := log_read.read(log, offset, 1 << 20, isolation).slice) is not None:
            seen += batches(piece.read())
            offset = seen[-1].next_offset
        assert [bytes(one.buffer) for one in seen] == [bytes(one.buffer) for one in visible]
        for offset in range(bound, log.log_end_offset + 1):
            found = log_read.read(log, offset, 1 << 20, isolation)
            assert (found.slice, found.first_batch_incomplete) == (None, False)
            committed = isolation is Isolation.TXN_COMMITTED
            assert found.aborted_transactions == ([] if committed else None)


def test_an_offset_outside_the_log_is_out_of_range() -> None:
    log = Node().log
    append(log, data(3), data(2))
    for isolation in Isolation:
        for offset in (-1, 6):
            refuses(
                ErrorCode.OFFSET_OUT_OF_RANGE, partial(log_read.read, log, offset, 100, isolation)
            )
    log.increment_log_start_offset(3)
    refuses(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: log_read.read(log, 2, 100))
    assert log_read.read(log, 3, 100).size == BATCH_SIZE


def test_an_empty_log_has_its_end_to_read_and_nothing_else() -> None:
    log = Node().log
    assert log_read.read(log, 0, 100).slice is None
    refuses(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: log_read.read(log, 1, 100))


def test_the_first_batch_comes_whole_if_one_is_asked_for() -> None:
    log = Node().log
    append(log, data(2), data(1))
    cut = log_read.read(log, 0, 40)
    assert (cut.size, cut.first_batch_incomplete) == (40, True)
    whole = log_read.read(log, 1, 40, min_one_batch=True)
    assert (whole.size, whole.first_batch_incomplete) == (BATCH_SIZE, False)
    assert log_read.read(log, 0, 150, min_one_batch=True).size == 150


def test_a_read_goes_on_in_the_next_segment_where_one_has_nothing_more() -> None:
    log = Node(LogConfig(segment_bytes=BATCH_SIZE)).log
    append(log, data(3), data(3), data(3))
    # Truncation into a batch takes the whole batch away, and the log goes on at the offset.
    log.truncate_to(5)
    append(log, data(2))
    assert [record.offset for record in log_records(log)] == [0, 1, 2, 5, 6]
    found = log_read.read(log, 4, 1000)
    assert found.slice is not None
    assert found.slice.base_offset == 5


# What was read stays good


GONE: dict[str, Callable[[Node], object]] = {
    "deleted": lambda node: node.manager.delete(PARTITION),
    "put aside": lambda node: node.manager.mark_stray(PARTITION),
    "retained": lambda node: delete_old_segments(node.log, NOW_MS + 10**9),
    "truncated": lambda node: node.log.truncate_fully_and_start_at(50),
    "closed": lambda node: node.stop(),
    "released": lambda node: node.kill(),
}


def is_open(inode: int) -> bool:
    """Tell whether a descriptor of this process is open for a file."""
    for descriptor in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if os.fstat(int(descriptor)).st_ino == inode:
                return True
    return False


@pytest.mark.parametrize("way", GONE)
def test_a_slice_is_good_after_its_file_has_gone_and_then_gives_the_descriptor_back(
    way: str, tmp_path: Path
) -> None:
    node = Node(
        LogConfig(retention_ms=1_000, file_delete_delay_ms=0),
        fs=OsFileSystem(),
        paths=[str(tmp_path)],
    )
    append(node.log, data(1), data(1))
    piece = log_read.read(node.log, 0, 1_000).slice
    assert piece is not None
    before, inode = piece.read(), os.stat(node.log.segments.active.path).st_ino
    GONE[way](node)
    node.manager.run_due() if way not in ("closed", "released") else None
    assert piece.read() == before
    assert is_open(inode)
    del piece
    assert not is_open(inode)
    node.kill()


# Memory


def test_the_indexes_of_a_segment_are_counted_once_and_not_after_it_has_gone() -> None:
    memory = IndexMemory()
    node = Node(
        LogConfig(segment_bytes=3 * BATCH_SIZE, index_interval_bytes=50, retention_ms=1_000),
        index_memory=memory,
    )
    append(node.log, *[data(1) for _ in range(9)])
    log = node.restart(clean=True)
    for _ in range(3):
        for offset in range(9):
            log_read.read(log, offset, 1_000)
    assert len(memory) <= len(log.segments) == 3
    log.truncate_to(4)
    assert len(memory) <= len(log.segments) == 2
    for number in range(20):
        append(log, data(1))
        log.roll()
        delete_old_segments(log, NOW_MS + number + 10**6)
    assert len(memory) <= len(log.segments) == 1
    append(log, data(1))
    log.roll()
    log_read.read(log, log.log_start_offset, 1_000)
    assert len(memory) > 0
    node.manager.delete(PARTITION)
    assert (len(memory), memory.bytes) == (0, 0)


@property_test(100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "read", "time", "truncate"]), st.integers(0, 99)
        ),
        max_size=60,
    )
)
def test_lookups_are_right_however_little_memory_closed_indexes_may_take(
    steps: list[tuple[str, int]],
) -> None:
    node = Node(LogConfig(segment_bytes=500, index_interval_bytes=80), index_memory=IndexMemory(20))
    log, records = node.log, list[tuple[int, int]]()
    for action, number in steps:
        end = log.log_end_offset
        if action == "append":
            append(log, data(2, timestamp=number))
            records += [(number, end), (number, end + 1)]
        elif action == "read" and number < end:
            piece = log_read.read(log, number, 1000).slice
            assert piece is not None
            assert piece.base_offset == number - number % 2
        elif action == "time":
            wanted = next((found for found in records if found[0] >= number), None)
            assert found_at(log, number) == wanted
        elif action == "truncate" and number < end:
            log.truncate_to(number - number % 2)
            del records[log.log_end_offset :]
    before = log_records(log)
    assert [(record.timestamp, record.offset) for record in before] == records
    node.stop()
    stopped = node.files(".index", ".timeindex")
    node.start()
    assert log_records(node.log) == before
    node.stop()
    assert node.files(".index", ".timeindex") == stopped


# Lookup by timestamp

TIMES = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.sampled_from(Codec)),
    max_size=25,
)


def timed_log(sent: list[tuple[list[int], Codec]]) -> Log:
    log = Node(LogConfig(segment_bytes=600, index_interval_bytes=100, segment_ms=40)).log
    append(log, *[batch(times, value=b"value", codec=codec) for times, codec in sent])
    return log


def first_at(records: list[Record], timestamp: int) -> tuple[int, int] | None:
    return next(((r.timestamp, r.offset) for r in records if r.timestamp >= timestamp), None)


def found_at(log: Log, timestamp: int) -> tuple[int, int] | None:
    found = log_read.find_by_timestamp(log, timestamp)
    assert found is None or found.leader_epoch == LEADER_EPOCH
    return None if found is None else (found.timestamp, found.offset)


@property_test(100)
@given(TIMES)
def test_lookup_by_timestamp_equals_a_search_through_all_records(
    sent: list[tuple[list[int], Codec]],
) -> None:
    log = timed_log(sent)
    records = log_records(log)
    for timestamp in range(-1, 63):
        assert found_at(log, timestamp) == first_at(records, timestamp)


@property_test(100)
@given(TIMES, st.data())
def test_lookup_by_timestamp_finds_nothing_below_the_log_start(
    sent: list[tuple[list[int], Codec]], draw: st.DataObject
) -> None:
    log = timed_log(sent)
    log.increment_log_start_offset(draw.draw(st.integers(0, log.log_end_offset)))
    records = log_records(log)
    for timestamp in range(-1, 63):
        assert found_at(log, timestamp) == first_at(records, timestamp)


@property_test(60)
@given(TIMES, st.booleans())
def test_lookup_by_timestamp_is_the_same_after_a_restart(
    sent: list[tuple[list[int], Codec]], clean: bool
) -> None:
    node = Node(LogConfig(segment_bytes=600, index_interval_bytes=100, segment_ms=40))
    append(node.log, *[batch(times, value=b"value", codec=codec) for times, codec in sent])
    log = node.restart(clean=clean)
    records = log_records(log)
    for timestamp in range(-1, 63):
        assert found_at(log, timestamp) == first_at(records, timestamp)


@property_test(100)
@given(TIMES, st.booleans())
def test_the_largest_timestamp_is_that_of_a_search_through_all_records(
    sent: list[tuple[list[int], Codec]], clean: bool
) -> None:
    node = Node(LogConfig(segment_bytes=600, index_interval_bytes=100, segment_ms=40))
    append(node.log, *[batch(times, value=b"value", codec=codec) for times, codec in sent])
    records = log_records(node.log)
    wanted = max(records, key=lambda record: record.timestamp, default=None)
    for log in (node.log, node.restart(clean=clean)):
        found = log_read.find_max_timestamp(log)
        if wanted is None:
            assert found is None
        else:
            assert found is not None
            assert (found.timestamp, found.offset) == (wanted.timestamp, wanted.offset)


def test_records_without_timestamps_hide_no_later_ones() -> None:
    node = Node(LogConfig(segment_bytes=BATCH_SIZE))
    append(node.log, data(1, timestamp=-1), data(1, timestamp=NOW_MS - 5))
    assert found_at(node.log, NOW_MS - 10) == (NOW_MS - 5, 1)


def test_with_log_append_time_the_lookup_finds_the_batch_s_time() -> None:
    node = Node(LogConfig(message_timestamp_type_log_append=True))
    append(node.log, batch([5, 6]))
    node.clock.advance(1000)
    append(node.log, batch([1, 2]))
    assert found_at(node.log, NOW_MS) == (NOW_MS, 0)
    assert found_at(node.log, NOW_MS + 1) == (NOW_MS + 1000, 2)
    assert found_at(node.log, NOW_MS + 1001) is None


@pytest.mark.parametrize("timestamp", [2**63 - 1, NOW_MS + 1])
def test_a_timestamp_behind_all_records_is_not_found(timestamp: int) -> None:
    log = Node().log
    assert log_read.find_by_timestamp(log, timestamp) is None
    append(log, data(1))
    assert log_read.find_by_timestamp(log, timestamp) is None


# What is soon told


@property_test()
@given(SENT, st.data())
def test_what_is_read_soon_is_what_is_read_otherwise(
    sent: list[tuple[int, int, int]], draw: st.DataObject
) -> None:
    """Whatever the reader may see, and wherever the log begins: None, or the same."""
    log = log_of(sent, draw.draw(st.sampled_from([SMALL, LogConfig()])))
    end = log.log_end_offset
    log.update_high_watermark(draw.draw(st.just(end) | st.integers(0, end)))
    log.increment_log_start_offset(draw.draw(st.integers(0, min(2, log.high_watermark))))
    max_bytes = draw.draw(st.sampled_from([1, 150, 400, 1 << 20]))
    isolation = draw.draw(st.sampled_from(Isolation))
    for offset in range(-1, end + 1):
        assert_read_soon_alike(log, offset, max_bytes, isolation)


@property_test()
@given(st.lists(st.sampled_from(["plain", "commit", "abort"]), max_size=8), st.booleans())
def test_what_is_read_soon_knows_of_transactions(kinds: list[str], is_open: bool) -> None:
    log = Node(LogConfig()).log
    for pid, kind in enumerate(kinds):
        if kind == "plain":
            append(log, batch([NOW_MS]))
        else:
            append_transactional(log, pid, 0)
            append_marker(log, pid, commit=kind == "commit")
    if is_open:
        append_transactional(log, 100, 0)
    append(log, batch([NOW_MS]))
    for isolation in Isolation:
        for offset in range(log.log_end_offset + 1):
            assert_read_soon_alike(log, offset, 1 << 20, isolation)


def assert_read_soon_alike(log: Log, offset: int, max_bytes: int, isolation: Isolation) -> None:
    soon = log_read.read_soon(log, offset, max_bytes, isolation)
    if soon is None:
        return
    found = log_read.read(log, offset, max_bytes, isolation, min_one_batch=True)
    assert found.slice is not None
    assert soon == (found.slice.read() if isinstance(soon, bytes) else found.slice)
    assert not found.aborted_transactions
