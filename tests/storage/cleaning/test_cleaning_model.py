"""Any log, cleaned in any number of rounds: what must hold of it (compaction 16, 1 to 7)."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from dohle.records.batch import RecordBatch
from dohle.storage.cleaning.round_values import CleanerSettings
from dohle.storage.cleaning.selection import look_at
from dohle.storage.log import Log
from dohle.storage.log_read import aborted_transactions
from dohle.storage.log_values import Isolation
from tests.storage.cleaning.cleaning import (
    SETTINGS,
    clean,
    compacted,
    extent,
    is_subsequence,
    last_values,
    producers,
    read_all,
    tiny_map,
)
from tests.storage.cleaning.steps import STEPS, Step, Writer
from tests.storage.logs import NOW_MS, Node, log_batches, property_test

DAY_MS = 86_400_000


def write(steps: list[Step], *, append_time: bool) -> Node:
    """A log of small segments, and at its end a record in an active segment."""
    config = compacted(400, message_timestamp_type_log_append=append_time)
    node = Node(config)
    writer = Writer(node.log)
    for step in steps:
        writer.take(step)
    return node


def check(log: Log, change: Callable[[], object], uncleanable: int) -> None:
    """Compare a log before and after."""
    before, committed = read_all(log), read_all(log, Isolation.TXN_COMMITTED)
    extent_before, producers_before = extent(log), producers(log)
    heads = {
        (b.base_offset, b.last_offset, b.producer_id, b.base_sequence, b.partition_leader_epoch)
        for b in log_batches(log)
    }
    tail = [bytes(b.buffer) for b in log_batches(log) if b.base_offset >= uncleanable]
    change()
    # 1: the last values of all keys.
    after, committed_after = read_all(log), read_all(log, Isolation.TXN_COMMITTED)
    assert last_values(committed_after) == last_values(committed)
    # 2: nothing new, nothing in another order, and nothing changed above.
    assert is_subsequence(after, before)
    assert is_subsequence(committed_after, committed)
    assert [bytes(b.buffer) for b in log_batches(log) if b.base_offset >= uncleanable] == tail
    # 3: offsets.
    found = log_batches(log)
    assert heads >= {
        (b.base_offset, b.last_offset, b.producer_id, b.base_sequence, b.partition_leader_epoch)
        for b in found
    }
    assert extent(log) == extent_before
    assert [b.base_offset for b in found] == sorted({b.base_offset for b in found})
    # 5: producers, as they are and as they would be found.
    assert producers(log) == producers_before
    # 6: an index entry for each abort marker that has data.
    aborted = aborted_transactions(log.segments, 0, log.log_end_offset)
    assert [one.last_offset for one in aborted] == sorted({one.last_offset for one in aborted})
    markers = {b.base_offset for b in found if b.is_control}
    assert {one.last_offset for one in aborted} <= markers
    for segment in log.segments:
        times = [b.max_timestamp for _, b in segment.reader.batches()]
        assert segment.indexes.max_timestamp.timestamp == max(times, default=-1)
        for _, batch in segment.reader.batches():
            head = segment.reader.find(batch.last_offset)
            assert head is not None
            assert head.base_offset == batch.base_offset


def reload_without_snapshots(node: Node) -> Log:
    for name in node.files(".snapshot"):
        node.remove(name)
    return node.restart(clean=False)


@property_test(80)
@given(STEPS, st.sampled_from([SETTINGS, tiny_map(2), tiny_map(4)]), st.booleans())
def test_cleaning_keeps_what_it_must(
    steps: list[Step], settings: CleanerSettings, append_time: bool
) -> None:
    node = write(steps, append_time=append_time)
    log = node.log
    checkpoint, now_ms = 0, NOW_MS
    for _ in range(60):
        uncleanable = look_at(log, checkpoint, now_ms).first_uncleanable_offset

        def change() -> None:
            nonlocal checkpoint
            checkpoint = clean(log, checkpoint, now_ms, settings).end_offset

        start = checkpoint
        check(log, change, uncleanable)
        assert start <= checkpoint <= uncleanable
        if checkpoint >= uncleanable:
            break
        assert checkpoint > start
    assert_clean(log, checkpoint)
    expected, known = extent(log), producers(log)
    found = [bytes(b.buffer) for b in log_batches(log)]
    log = reload_without_snapshots(node)
    log.update_high_watermark(log.log_end_offset)
    assert extent(log) == expected
    assert producers(log) == known
    assert [bytes(b.buffer) for b in log_batches(log)] == found


def assert_clean(log: Log, checkpoint: int) -> None:
    """4 and 7: another round changes nothing but horizons, and later all tombstones go."""
    clean(log, checkpoint)
    shown = read_all(log)
    files = [bytes(b.buffer) for b in log_batches(log)]
    clean(log, checkpoint)
    assert read_all(log) == shown
    clean(log, checkpoint)
    assert clean(log, checkpoint).statistics.bytes_written == 0
    assert len(log_batches(log)) == len(files)
    clean(log, checkpoint, NOW_MS + DAY_MS - 1)
    assert read_all(log) == shown
    clean(log, checkpoint, NOW_MS + DAY_MS)
    for batch in log_batches(log):
        if batch.last_offset < checkpoint and not batch.is_control:
            assert all(record.value is not None for record in batch)
    keys = [record.key for record in read_all(log) if record.offset < checkpoint]
    assert len(keys) == len(set(keys))


@property_test(40)
@given(STEPS)
def test_several_small_rounds_give_the_same_as_a_large_one(steps: list[Step]) -> None:
    """4: the same records stay."""
    found = []
    for settings in (SETTINGS, tiny_map(3)):
        log = write(steps, append_time=False).log
        checkpoint = 0
        while checkpoint < look_at(log, checkpoint, NOW_MS).first_uncleanable_offset:
            checkpoint = clean(log, checkpoint, NOW_MS, settings).end_offset
        found.append(read_all(log))
    assert found[0] == found[1]


@property_test(40)
@given(STEPS, st.booleans())
def test_records_keep_their_time(steps: list[Step], append_time: bool) -> None:
    """7a and 7c: batch times are those of their records, whatever the base timestamp is."""
    log = write(steps, append_time=append_time).log
    clean(log)
    for batch in log_batches(log):
        if isinstance(batch, RecordBatch) and batch.record_count:
            assert batch.max_timestamp == max(record.timestamp for record in batch)
            if batch.delete_horizon_ms is not None:
                assert batch.delete_horizon_ms == NOW_MS + DAY_MS
