from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.files import OsFileSystem
from dohle.storage.log import Log
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    Node,
    append,
    batch,
    data,
    log_bytes,
    log_records,
    name_of,
    offsets,
)

HOUR_MS = 3_600_000
#: Two batches a segment, and nothing goes by itself.
CONFIG = LogConfig(segment_bytes=2 * BATCH_SIZE, retention_ms=-1, file_delete_delay_ms=60_000)


def filled(config: LogConfig, timestamps: list[int] | None = None) -> Node:
    """A node with the segments 0-1, 2-3, 4-5, 6."""
    node = Node(config)
    times = timestamps or [NOW_MS] * 7
    append(node.log, *[data(1, timestamp=timestamp) for timestamp in times])
    assert node.log.segments.base_offsets == (0, 2, 4, 6)
    return node


def retain(node: Node) -> int:
    return delete_old_segments(node.log, node.clock.now_ms())


def first(log: Log) -> int:
    return log.segments.base_offsets[0]


# By time


def test_segments_go_once_their_largest_timestamp_is_older_than_retention_ms() -> None:
    times = [NOW_MS + n * 1000 for n in range(7)]
    node = filled(replace(CONFIG, retention_ms=HOUR_MS), times)
    node.clock.advance(HOUR_MS + 1000)
    assert retain(node) == 0
    node.clock.advance(1)
    assert retain(node) == 1
    assert node.log.segments.base_offsets == (2, 4, 6)
    assert node.log.log_start_offset == 2
    assert offsets(log_records(node.log)) == [2, 3, 4, 5, 6]
    node.clock.advance(4000)
    assert retain(node) == 2
    assert node.log.log_start_offset == 6


def test_the_first_segment_that_may_stay_keeps_all_behind_it() -> None:
    times = [NOW_MS, NOW_MS, NOW_MS + HOUR_MS, NOW_MS, NOW_MS, NOW_MS, NOW_MS]
    node = filled(replace(CONFIG, retention_ms=HOUR_MS), times)
    node.clock.advance(HOUR_MS + 1)
    assert retain(node) == 1
    assert node.log.segments.base_offsets == (2, 4, 6)


def test_the_file_s_time_counts_where_records_have_no_timestamps() -> None:
    node = filled(replace(CONFIG, retention_ms=HOUR_MS), [-1] * 7)
    for base, age in ((0, HOUR_MS + 1), (2, HOUR_MS), (4, 0)):
        node.fs.set_mtime(node.path(name_of(base, ".log")), NOW_MS - age)
    assert retain(node) == 1
    assert first(node.log) == 2


def test_the_active_segment_goes_too_and_leaves_an_empty_one() -> None:
    node = filled(replace(CONFIG, retention_ms=HOUR_MS))
    node.clock.advance(HOUR_MS + 1)
    assert retain(node) == 4
    log = node.log
    assert log.segments.base_offsets == (7,)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (7, 7, 7)
    assert log_read.read(log, 7, 100).slice is None
    # An empty segment stays as it is, however old.
    assert retain(node) == 0
    assert append(log, data(1, timestamp=node.clock.now_ms()))[0].first_offset == 7
    assert offsets(log_records(node.restart(clean=False))) == [7]


def test_without_retention_ms_nothing_goes_by_age() -> None:
    node = filled(CONFIG, [1] * 7)
    node.clock.advance(10**12)
    assert retain(node) == 0


# By size


@pytest.mark.parametrize(
    ("retention_bytes", "start"),
    [(701, 0), (501, 0), (500, 2), (301, 2), (300, 4), (100, 6), (99, 6), (0, 7)],
)
def test_segments_go_while_what_is_left_is_still_retention_bytes(
    retention_bytes: int, start: int
) -> None:
    node = filled(replace(CONFIG, retention_bytes=retention_bytes))
    assert node.log.size == 700
    retain(node)
    assert node.log.log_start_offset == first(node.log) == start
    assert offsets(log_records(node.log)) == list(range(start, 7))
    assert retain(node) == 0


def test_size_and_time_both_count() -> None:
    times = [NOW_MS, NOW_MS] + [NOW_MS + HOUR_MS] * 5
    node = filled(replace(CONFIG, retention_bytes=10_000, retention_ms=HOUR_MS), times)
    node.clock.advance(HOUR_MS + 1)
    assert retain(node) == 1
    node.log.config = replace(node.log.config, retention_bytes=200)
    assert retain(node) == 1
    assert first(node.log) == 4


# By log start


@pytest.mark.parametrize(("start", "base"), [(1, 0), (2, 2), (3, 2), (6, 6), (7, 6)])
def test_segments_wholly_below_the_log_start_go(start: int, base: int) -> None:
    node = filled(CONFIG)
    node.log.delete_records(start)
    retain(node)
    assert first(node.log) == base
    assert node.log.log_start_offset == start
    assert offsets(log_records(node.log)) == list(range(start, 7))


def test_a_compacted_topic_loses_segments_by_log_start_only() -> None:
    config = replace(
        CONFIG, cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=0
    )
    node = filled(config)
    node.clock.advance(HOUR_MS)
    assert retain(node) == 0
    node.log.increment_log_start_offset(5)
    assert retain(node) == 2
    assert first(node.log) == 4


def test_a_topic_that_is_compacted_and_deleted_loses_segments_by_every_rule() -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=300)
    node = filled(config)
    assert retain(node) == 2


# The high watermark


@pytest.mark.parametrize(("high_watermark", "base"), [(0, 0), (1, 0), (2, 2), (5, 4), (6, 6)])
def test_nothing_above_the_high_watermark_goes(high_watermark: int, base: int) -> None:
    node = filled(replace(CONFIG, retention_ms=1, retention_bytes=0))
    node.clock.advance(HOUR_MS)
    node.log.update_high_watermark(high_watermark)
    retain(node)
    assert first(node.log) == base
    assert node.log.log_start_offset == base <= node.log.high_watermark
    assert node.log.log_end_offset == 7


# Files


def test_the_files_of_a_segment_are_renamed_now_and_removed_after_the_delay() -> None:
    node = filled(replace(CONFIG, retention_bytes=500))
    before = node.files(name_of(0, ".log"), name_of(0, ".index"), name_of(0, ".timeindex"))
    assert len(before) == 3
    retain(node)
    assert node.files(".deleted") == {f"{name}.deleted": found for name, found in before.items()}
    assert not before.keys() & node.names()
    assert node.manager.next_due_ms() <= NOW_MS + 60_000
    node.clock.advance(59_999)
    node.manager.run_due()
    assert len(node.files(".deleted")) == 3
    node.clock.advance(1)
    node.manager.run_due()
    assert not node.files(".deleted")


def test_the_snapshot_of_a_segment_goes_with_it() -> None:
    node = Node(replace(CONFIG, retention_bytes=200))
    for sequence in range(7):
        append(node.log, batch(value=bytes(31), pid=9, epoch=0, sequence=sequence))
    assert node.log.segments.base_offsets == (0, 2, 4, 6)
    assert name_of(2, ".snapshot") in node.names()
    retain(node)
    assert first(node.log) == 4
    assert name_of(2, ".snapshot") not in node.names()
    assert name_of(2, ".snapshot") + ".deleted" in node.names()
    # The producer is known all the same, even where its batches are gone.
    log = node.restart(clean=False)
    assert log.producer_state.producers[9].last_sequence == 6


def test_the_manager_applies_retention_at_its_interval() -> None:
    node = filled(replace(CONFIG, retention_ms=HOUR_MS))
    node.clock.advance(HOUR_MS + 1)
    node.manager.run_due()
    assert node.log.log_start_offset == 7
    node.clock.advance(60_000)
    node.manager.run_due()
    assert not node.files(".deleted")
    assert node.files(".log").keys() == {name_of(7, ".log")}


@pytest.mark.parametrize("clean", [True, False])
def test_what_retention_took_stays_away_after_a_restart(clean: bool) -> None:
    node = filled(replace(CONFIG, retention_bytes=300))
    retain(node)
    log = node.restart(clean=clean)
    assert (log.log_start_offset, log.log_end_offset) == (4, 7)
    assert offsets(log_records(log)) == [4, 5, 6]
    assert not node.files(".deleted")


def test_a_log_that_retention_emptied_goes_on_at_its_end_after_a_restart() -> None:
    for clean in (True, False):
        node = filled(replace(CONFIG, retention_bytes=0))
        retain(node)
        log = node.restart(clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)
        assert append(log, data(1))[0].first_offset == 7


# Readers

ON_DISK = replace(CONFIG, retention_bytes=300)


@pytest.fixture(params=["simulated", "os"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    if request.param == "simulated":
        node = Node(ON_DISK)
    else:
        node = Node(ON_DISK, fs=OsFileSystem(), paths=[str(tmp_path)])
    append(node.log, *[data(1) for _ in range(7)])
    yield node
    node.kill()


def test_a_reader_of_an_old_slice_keeps_reading_until_the_files_are_removed(node: Node) -> None:
    slices = [log_read.read(node.log, offset, 1000).slice for offset in (0, 2, 4)]
    content = log_bytes(node.log)
    retain(node)
    assert first(node.log) == 4
    node.clock.advance(59_999)
    node.manager.run_due()
    for number, piece in enumerate(slices):
        assert piece is not None
        assert piece.read() == content[200 * number : 200 * number + 200]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors cannot be listed here")
def test_descriptors_of_removed_segments_are_given_back(tmp_path: Path) -> None:
    node = Node(ON_DISK, fs=OsFileSystem(), paths=[str(tmp_path)])
    append(node.log, *[data(1) for _ in range(7)])
    assert log_read.read(node.log, 0, 1000).size == 200
    retain(node)
    node.clock.advance(60_000)
    node.manager.run_due()
    targets = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    # A descriptor that stays open keeps the disk full.
    assert not [
        target for target in targets if target.startswith(str(tmp_path)) and "deleted" in target
    ]
    node.kill()


def test_appends_go_on_after_retention(node: Node) -> None:
    retain(node)
    node.log.append_as_leader(data(3), LEADER_EPOCH)
    assert offsets(log_records(node.log)) == [4, 5, 6, 7, 8, 9]
