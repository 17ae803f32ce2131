"""A log whose older part is in the remote tier only (T5, T14, T15c)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.log_values import Isolation
from dohle.storage.producers.snapshot import decode_snapshot
from tests.storage.logs import BATCH_SIZE, LEADER_EPOCH, NOW_MS, Node, append, batch, data

#: Two batches a segment; nothing expires, and all of it may leave this disk once it is remote.
CONFIG = LogConfig(
    segment_bytes=2 * BATCH_SIZE,
    retention_ms=-1,
    local_retention_ms=0,
    remote_storage_enable=True,
    file_delete_delay_ms=0,
)


def _filled(config: LogConfig = CONFIG) -> Node:
    """A node with the segments 0-1, 2-3, 4-5, 6, all of them old."""
    node = Node(config)
    append(node.log, *[data(1, timestamp=NOW_MS - 1) for _ in range(7)])
    node.log.update_high_watermark(7)
    assert node.log.segments.base_offsets == (0, 2, 4, 6)
    return node


def _bases(node: Node) -> list[int]:
    return list(node.log.segments.base_offsets)


def _retain(node: Node) -> int:
    return delete_old_segments(node.log, node.clock.now_ms())


def test_nothing_leaves_the_disk_before_it_is_known_to_be_remote() -> None:
    """T5, T27.2."""
    node = _filled()
    assert _retain(node) == 0
    assert node.log.segments.base_offsets[:4] == (0, 2, 4, 6)


def test_segments_that_are_remote_go_and_the_log_start_stays() -> None:
    """T5: localLogStart moves only."""
    node = _filled()
    node.log.highest_remote_offset = 4
    assert _retain(node) == 2
    assert node.log.segments.first.base_offset == 4
    assert (node.log.log_start_offset, node.log.local_log_start_offset) == (0, 4)
    assert node.log.leader_epochs.entries == [EpochEntry(LEADER_EPOCH, 0)]


def test_what_comes_after_a_truncation_is_not_taken_for_remote() -> None:
    """T27.2: other records have these offsets now, which the store does not have."""
    node = _filled()
    node.log.highest_remote_offset = 5
    node.log.truncate_to(3)
    append(node.log, *[data(1, timestamp=NOW_MS - 1) for _ in range(4)])
    node.log.update_high_watermark(7)
    assert _retain(node) == 1
    assert node.log.segments.first.base_offset == 2


def test_an_active_segment_that_is_too_old_is_closed_and_goes_when_it_is_copied() -> None:
    """T5."""
    node = _filled()
    node.log.highest_remote_offset = 5
    assert _retain(node) == 3
    assert _bases(node) == [6, 7]
    assert _retain(node) == 0
    node.log.highest_remote_offset = 6
    assert _retain(node) == 1
    assert _bases(node) == [7]


def test_by_size_as_much_stays_here_as_local_retention_bytes_says() -> None:
    """T5."""
    node = _filled(replace(CONFIG, local_retention_ms=-1, local_retention_bytes=3 * BATCH_SIZE))
    node.log.highest_remote_offset = 5
    assert _retain(node) == 2
    assert node.log.segments.first.base_offset == 4


def test_with_copies_disabled_retention_moves_the_log_start() -> None:
    """T5, T2: nothing more gets remote, so the total limits count."""
    node = _filled(replace(CONFIG, remote_log_copy_disable=True, retention_ms=0))
    assert _retain(node) > 0
    assert node.log.log_start_offset == node.log.local_log_start_offset > 0


def test_an_empty_policy_keeps_all_in_the_tier_but_not_on_this_disk() -> None:
    """T5."""
    node = _filled(replace(CONFIG, cleanup_policy=frozenset()))
    node.log.highest_remote_offset = 5
    assert _retain(node) == 3
    assert node.log.log_start_offset == 0


def test_a_read_of_the_remote_part_says_where_the_offset_is() -> None:
    """T12: never data from behind it; out of range is only what is in no tier."""
    node = _filled()
    node.log.highest_remote_offset = 5
    _retain(node)
    with pytest.raises(log_read.OffsetMovedToTier) as moved:
        log_read.read(node.log, 3, 1000)
    assert moved.value.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert log_read.read_soon(node.log, 3, 1000, Isolation.LOG_END) is None
    assert log_read.readable_bytes(node.log, 3, Isolation.LOG_END, 100) is None
    assert log_read.read(node.log, 6, 1000).size > 0
    node.log.increment_log_start_offset(2)
    with pytest.raises(KafkaError) as gone:
        log_read.read(node.log, 1, 1000)
    assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_keeps_where_the_whole_log_begins(clean: bool) -> None:
    """T14, T15c: the checkpoint has every tiered log; the high watermark is not below the disk."""
    node = _filled()
    node.log.increment_log_start_offset(1)
    node.log.highest_remote_offset = 5
    _retain(node)
    node.log.flush()
    directory = node.manager.directories[0]
    directory.checkpoints.write_all()
    log = node.restart(clean=clean)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (1, 6, 7)
    assert log.high_watermark >= log.local_log_start_offset
    assert log.highest_remote_offset == -1
    assert log.leader_epochs.entries == [EpochEntry(LEADER_EPOCH, 1)]
    append(log, data())
    assert log.log_end_offset == 8


def test_deleting_records_raises_both_starts() -> None:
    """T15."""
    node = _filled()
    node.log.delete_records(5)
    assert (node.log.log_start_offset, node.log.local_log_start_offset) == (5, 5)


def test_a_replica_that_begins_from_the_tier_has_its_epochs_and_producers() -> None:
    """T14, T27.4: duplicates are still recognised, after a restart too."""
    leader = Node(CONFIG)
    append(leader.log, batch([NOW_MS], pid=7, epoch=0, sequence=0))
    leader.log.roll()
    snapshot = leader.log.producer_state.snapshots.find(1)
    assert snapshot is not None
    producers = decode_snapshot(leader.fs.read(snapshot))
    follower = Node(CONFIG)
    append(follower.log, data(), data())
    follower.log.start_from_tier(1, 0, [EpochEntry(LEADER_EPOCH, 0), EpochEntry(9, 5)], producers)
    log = follower.log
    for _ in range(2):
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 1)
        assert (log.log_end_offset, log.high_watermark) == (1, 1)
        assert log.leader_epochs.entries == [EpochEntry(LEADER_EPOCH, 0)]
        assert list(log.producer_state.producers) == [7]
        follower.manager.directories[0].checkpoints.write_all()
        log = follower.restart(clean=False)


def test_closed_segments_that_recovery_has_found_can_be_flushed_without_another_append() -> None:
    """T3: they are copied only when they are on the disk, and nobody may write here again."""
    node = _filled()
    log = node.restart(clean=False)
    assert log.recovery_point < 6
    log.flush_soon(6)
    node.manager.flush_due_now()
    assert log.recovery_point >= 6
    log.flush_soon(4)
    assert log.prepare_due_flush() is None
