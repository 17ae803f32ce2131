"""What a round reads and writes: times of files, batches larger than its buffer, empty batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dohle.core.steps import finish
from dohle.records.batch import RecordBatch
from dohle.storage.cleaning.round_values import Uncleanable
from dohle.storage.directory.retention import delete_old_segments
from tests.storage.cleaning.cleaning import (
    COMPACT,
    SETTINGS,
    clean,
    compacted,
    keyed,
    offsets_of,
    put,
    shapes,
)
from tests.storage.logs import LEADER_EPOCH, NOW_MS, Node, log_batches, name_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
#: Half of it is for reading.
SMALL_BUFFER = replace(SETTINGS, io_buffer_bytes=2_048)
BUFFER_BYTES = 1_024


def test_the_new_files_have_the_time_of_the_last_source() -> None:
    """Compaction 7.5: log, index and time index."""
    node = Node(compacted())
    log = node.log
    for base in range(3):
        put(log, (b"a", b"%d" % base), timestamps=(-1,))
        log.roll()
    put(log, (b"z", b""), timestamps=(-1,))
    for base, age_ms in ((0, 2 * HOUR_MS), (1, 3 * HOUR_MS), (2, HOUR_MS), (3, 0)):
        for kind in (".log", ".index", ".timeindex"):
            node.fs.set_mtime(node.path(name_of(base, kind)), NOW_MS - age_ms)
    node.clock.advance(10 * HOUR_MS)
    clean(log)
    assert log.segments.base_offsets == (0, 3)
    for kind in (".log", ".index", ".timeindex"):
        assert node.fs.stat(node.path(name_of(0, kind))).mtime_ms == NOW_MS - HOUR_MS


@pytest.mark.parametrize(("retention_ms", "start"), [(2 * HOUR_MS, 0), (HOUR_MS - 1, 3)])
def test_cleaning_does_not_make_records_without_timestamps_younger(
    retention_ms: int, start: int
) -> None:
    """Compaction 7.5: their retention goes by the time of the file."""
    both = replace(compacted(), cleanup_policy=COMPACT | {"delete"}, retention_ms=retention_ms)
    node = Node(both)
    log = node.log
    for number in range(3):
        put(log, (b"a", b"%d" % number), timestamps=(-1,))
        log.roll()
        node.fs.set_mtime(node.path(name_of(number, ".log")), NOW_MS - HOUR_MS)
    put(log, (b"z", b""), timestamps=(-1,))
    clean(log)
    delete_old_segments(log, NOW_MS)
    assert log.log_start_offset == start


def test_batches_may_be_larger_than_the_buffer() -> None:
    """Compaction 7d: those that stay, those that are rebuilt, and those that go."""
    log = Node(compacted()).log
    large = bytes(5 * BUFFER_BYTES)
    put(log, (b"gone", large))
    put(log, (b"small", b""))
    put(log, (b"rebuilt", large), (b"gone", b"1"), (b"gone", b"2"))
    put(log, (b"stays", large + large))
    put(log, (b"small", b"2"))
    log.roll()
    put(log, (b"z", b""))
    clean(log, settings=SMALL_BUFFER)
    assert offsets_of(log) == [2, 4, 5, 6, 7]
    values = [record.value for batch in log_batches(log) for record in batch]
    assert values == [large, b"2", large + large, b"2", b""]


def test_a_batch_may_become_larger_than_the_buffer() -> None:
    """Compaction 7d (KAFKA-5316): with a horizon, every timestamp needs more bytes."""
    log = Node(compacted()).log
    tombstones = [(b"%03d" % number, None) for number in range(80)]
    assert len(keyed(tombstones)) < BUFFER_BYTES
    put(log, *tombstones)
    log.roll()
    put(log, (b"z", b""))
    clean(log, settings=SMALL_BUFFER)
    batch = log_batches(log)[0]
    assert isinstance(batch, RecordBatch)
    assert batch.size > BUFFER_BYTES
    assert batch.delete_horizon_ms == NOW_MS + DAY_MS
    assert offsets_of(log) == list(range(81))


def test_a_batch_that_would_be_larger_than_its_file_is_damage() -> None:
    """Compaction 7d: the buffer never grows beyond the bytes that are left of the file."""
    node = Node(compacted())
    log = node.log
    put(log, (b"a", b"1"))
    second = log.segments.active.size
    put(log, (b"a", b"2"))
    log.roll()
    log.flush()
    # The highest byte of the second batch's length: it would be 16 MiB.
    node.disk.flip_bit(log.segments.first.path, second + 8, 0)
    with pytest.raises(Uncleanable, match=r"0000\.log"):
        clean(log, settings=SMALL_BUFFER)


def test_the_empty_batch_of_an_expired_producer_goes_in_a_later_round() -> None:
    """Compaction 10: nobody needs it to recognise a retry any more."""
    log = Node(compacted()).log
    put(log, (b"a", b"1"), pid=5, sequence=0)
    put(log, (b"a", b"2"))
    log.roll()
    put(log, (b"z", b""))
    checkpoint = clean(log).end_offset
    assert shapes(log)[0] == (0, 0, [], False)
    log.roll()
    put(log, (b"z", b"1"))
    checkpoint = clean(log, checkpoint).end_offset
    assert shapes(log)[0] == (0, 0, [], False)
    finish(log.producer_state.remove_expired_producers(NOW_MS + DAY_MS - 1))
    assert list(log.producer_state.producers) == [5]
    finish(log.producer_state.remove_expired_producers(NOW_MS + DAY_MS))
    assert list(log.producer_state.producers) == []
    log.roll()
    put(log, (b"z", b"2"))
    clean(log, checkpoint)
    assert offsets_of(log) == [1, 3, 4]
    assert shapes(log)[0] == (1, 1, [1], False)
    # The log begins where it began.
    assert log.log_start_offset == 0
    assert log.append_as_leader(keyed([(b"y", b"")]), LEADER_EPOCH).first_offset == 5
