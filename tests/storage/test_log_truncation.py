from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicPartition
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.checkpoints import read_offsets
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.log import Log
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    PARTITION,
    Node,
    append,
    batch,
    data,
    log_records,
    name_of,
    offsets,
    refuses,
    state_of,
)

PID = 17


def idempotent(sequence: int) -> bytearray:
    return batch(pid=PID, epoch=0, sequence=sequence)


def checkpoint(node: Node, name: str) -> dict[TopicPartition, int]:
    return read_offsets(node.fs, f"{node.paths[0]}/{name}")


# Truncation


def test_truncation_takes_back_everything_from_an_offset_on() -> None:
    log = Node().log
    append(log, data(2), data(2), data(2))
    assert log.truncate_to(4)
    assert log.log_end_offset == 4
    assert log.high_watermark == 4
    assert log.size == 2 * BATCH_SIZE
    assert offsets(log_records(log)) == [0, 1, 2, 3]
    assert append(log, data(1))[0].first_offset == 4


def test_truncation_into_a_batch_takes_the_whole_batch() -> None:
    log = Node().log
    append(log, data(2), data(3))
    assert log.truncate_to(4)
    assert log.log_end_offset == 4
    assert offsets(log_records(log)) == [0, 1]
    assert append(log, data(1))[0].first_offset == 4
    assert offsets(log_records(log)) == [0, 1, 4]


@pytest.mark.parametrize("clean", [True, False])
def test_a_truncated_log_is_the_same_after_a_restart(clean: bool) -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE, index_interval_bytes=50))
    append(node.log, *[data(1, timestamp=NOW_MS + n) for n in range(7)])
    node.log.flush()
    node.log.truncate_to(3)
    append(node.log, data(2, timestamp=NOW_MS - 9))
    before = log_records(node.log)
    log = node.restart(clean=clean)
    assert log_records(log) == before
    assert log.log_end_offset == 5
    found = log_read.find_max_timestamp(log)
    assert found is not None
    assert found.timestamp == NOW_MS + 2


def test_truncation_at_or_behind_the_end_changes_nothing_but_epochs_without_records() -> None:
    log = Node().log
    append(log, data(2))
    log.leader_epochs.assign(LEADER_EPOCH + 1, 2)
    before = state_of(log)[:6]
    assert not log.truncate_to(2)
    assert not log.truncate_to(99)
    assert state_of(log)[:6] == before
    assert log.leader_epochs.entries == [EpochEntry(LEADER_EPOCH, 0)]


def test_a_negative_offset_cannot_be_truncated_to() -> None:
    with pytest.raises(ValueError, match="-1"):
        Node().log.truncate_to(-1)


def test_truncation_removes_the_segments_behind_it() -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    append(node.log, *[data(1) for _ in range(7)])
    assert list(node.log.segments.base_offsets) == [0, 2, 4, 6]
    node.log.truncate_to(3)
    assert list(node.log.segments.base_offsets) == [0, 2]
    assert node.files(".log").keys() == {name_of(0, ".log"), name_of(2, ".log")}
    append(node.log, data(1), data(1))
    assert offsets(log_records(node.log)) == [0, 1, 2, 3, 4]
    # The new segment at 4 must not be taken for the one that is waiting to be deleted.
    node.clock.advance(node.config.file_delete_delay_ms)
    node.manager.run_due()
    assert offsets(log_records(node.log)) == [0, 1, 2, 3, 4]
    assert offsets(log_records(node.restart(clean=False))) == [0, 1, 2, 3, 4]


def test_truncation_to_a_segments_start_leaves_it_empty() -> None:
    log = Node(LogConfig(segment_bytes=2 * BATCH_SIZE)).log
    append(log, *[data(1) for _ in range(5)])
    log.truncate_to(2)
    assert log.segments.base_offsets == (0, 2)
    assert log.segments.active.size == 0
    append(log, data(1))
    assert offsets(log_records(log)) == [0, 1, 2]


def test_truncation_cuts_leader_epochs() -> None:
    log = Node().log
    for epoch in range(4):
        log.append_as_leader(data(2), epoch)
    log.truncate_to(4)
    assert log.leader_epochs.entries == [EpochEntry(0, 0), EpochEntry(1, 2)]
    log.append_as_leader(data(1), 7)
    assert log.leader_epochs.entries == [EpochEntry(0, 0), EpochEntry(1, 2), EpochEntry(7, 4)]


def test_truncation_takes_producers_back_to_what_they_were() -> None:
    log = Node(LogConfig(segment_bytes=2 * BATCH_SIZE)).log
    append(log, *[idempotent(sequence) for sequence in range(9)])
    log.truncate_to(4)
    assert log.producer_state.producers[PID].last_sequence == 3
    refuses(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        lambda: log.append_as_leader(idempotent(9), LEADER_EPOCH),
    )
    assert append(log, idempotent(4))[0].first_offset == 4


def test_truncation_below_what_was_flushed_takes_the_recovery_point_back_on_disk() -> None:
    node = Node()
    append(node.log, data(2), data(2))
    node.log.flush()
    node.manager.directories[0].checkpoints.write_recovery_points()
    assert checkpoint(node, "recovery-point-offset-checkpoint") == {PARTITION: 4}
    node.log.truncate_to(2)
    assert node.log.recovery_point == 2
    assert checkpoint(node, "recovery-point-offset-checkpoint") == {PARTITION: 2}


def test_a_recovery_point_that_a_crash_kept_from_the_disk_is_written_at_the_next_start() -> None:
    node = Node()
    append(node.log, *[data(1) for _ in range(10)])
    node.log.flush()
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.manager.directories[0].checkpoints.write_high_watermarks()
    node.disk.fail(Operation.CREATE, "/data/recovery-point-offset-checkpoint.tmp", errno.EIO)
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: node.log.truncate_to(5))
    node.disk.heal()
    assert checkpoint(node, "recovery-point-offset-checkpoint") == {PARTITION: 10}
    log = node.restart(clean=False)
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (5, 5, 5)
    assert checkpoint(node, "recovery-point-offset-checkpoint") == {PARTITION: 5}
    assert checkpoint(node, "replication-offset-checkpoint") == {PARTITION: 5}
    # Else what comes now would count as flushed.
    append(log, *[data(1) for _ in range(3)])
    log.roll()
    append(log, *[data(1) for _ in range(3)])
    for seed in range(40):
        node.fs = disk = node.disk.copy()
        disk.power_loss(random.Random(seed))
        node.start()
        found = offsets(log_records(node.log))
        assert found == list(range(len(found)))
        assert len(found) >= 5


TRUNCATIONS: dict[str, Callable[[Log], object]] = {
    "to an offset": lambda log: log.truncate_to(3),
    "fully": lambda log: log.truncate_fully_and_start_at(100),
}


@pytest.mark.parametrize("kind", TRUNCATIONS)
def test_a_truncation_that_is_cut_short_leaves_no_hole(kind: str) -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    append(node.log, *[data(1) for _ in range(9)])
    node.log.flush()
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.kill()
    node.disk.settle()
    disk = node.disk
    for count in range(200):
        for power_lost in (False, True):
            node.fs = node.disk = disk.copy()
            node.start()
            node.disk.cut_after_operations(count)
            with suppress(SimulatedCrash):
                TRUNCATIONS[kind](node.log)
            done = not node.disk.crashed
            if power_lost:
                node.disk.power_loss(random.Random(count))
            else:
                node.disk.crash()
            node.start()
            found = offsets(log_records(node.log))
            assert found == list(range(len(found)))
        if done:
            return
    pytest.fail("the truncation does not come to an end")


def test_what_was_truncated_does_not_come_back_after_a_power_cut() -> None:
    node = Node()
    append(node.log, data(2), data(2))
    node.log.flush()
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.log.truncate_to(2)
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert offsets(log_records(node.log)) == [0, 1]


def test_truncation_below_the_first_segment_starts_the_log_anew() -> None:
    log = Node(LogConfig(segment_bytes=BATCH_SIZE)).log
    log.truncate_fully_and_start_at(10)
    append(log, data(2), data(2))
    assert log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert log.segments.base_offsets == (5,)


def test_truncation_below_the_log_start_takes_it_along() -> None:
    log = Node().log
    append(log, data(1), data(1), data(1))
    log.increment_log_start_offset(2)
    log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1, 1, 1)


# Starting anew


@pytest.mark.parametrize("start", [100, 3, 0])
def test_a_log_can_be_started_anew_at_any_offset(start: int) -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    append(node.log, *[idempotent(sequence) for sequence in range(5)])
    log = node.log
    log.flush()
    log.truncate_fully_and_start_at(start)
    assert (log.log_start_offset, log.log_end_offset) == (start, start)
    assert log.high_watermark == start
    assert log.last_stable_offset == start
    assert log.recovery_point <= start
    assert log.segments.base_offsets == (start,)
    assert log.leader_epochs.entries == []
    assert dict(log.producer_state.producers) == {}
    assert append(log, data(2))[0].first_offset == start
    assert offsets(log_records(log)) == [start, start + 1]
    assert offsets(log_records(node.restart(clean=False))) == [start, start + 1]
    node.clock.advance(node.config.file_delete_delay_ms)
    node.manager.run_due()
    assert offsets(log_records(node.restart(clean=True))) == [start, start + 1]


def test_a_log_started_anew_may_have_an_earlier_log_start() -> None:
    log = Node().log
    append(log, data(2))
    log.truncate_fully_and_start_at(50, log_start_offset=20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 50)
    assert log.high_watermark == 50
    log.append_as_follower(data(1, base_offset=50, leader_epoch=1), 1)
    assert log.log_end_offset == 51


# DeleteRecords


def deletable(config: LogConfig | None = None) -> Log:
    log = Node(config).log
    append(log, data(2), data(2), data(2))
    log.append_as_leader(data(2), LEADER_EPOCH)
    return log


def test_delete_records_moves_the_log_start() -> None:
    log = deletable()
    assert log.delete_records(3) == 3
    assert log.log_start_offset == 3
    assert offsets(log_records(log)) == [3, 4, 5, 6, 7]
    refuses(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: log_read.read(log, 2, 100))


def test_delete_records_with_minus_one_goes_up_to_the_high_watermark() -> None:
    log = deletable()
    assert log.delete_records(-1) == 6
    assert log.log_start_offset == log.high_watermark == 6


def test_delete_records_does_not_go_back() -> None:
    log = deletable()
    log.delete_records(5)
    assert log.delete_records(2) == 5
    assert log.delete_records(5) == 5


@pytest.mark.parametrize("offset", [7, 8, 99, -2, -(2**63)])
def test_delete_records_refuses_what_is_above_the_high_watermark_or_no_offset(offset: int) -> None:
    log = deletable()
    refuses(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: log.delete_records(offset))
    assert log.log_start_offset == 0


def test_delete_records_is_not_for_topics_that_are_only_compacted() -> None:
    log = deletable(LogConfig(cleanup_policy=frozenset({"compact"})))
    refuses(ErrorCode.POLICY_VIOLATION, lambda: log.delete_records(3))
    assert log.log_start_offset == 0
    both = deletable(LogConfig(cleanup_policy=frozenset({"compact", "delete"})))
    assert both.delete_records(3) == 3


def test_delete_records_cuts_leader_epochs() -> None:
    log = Node().log
    log.append_as_leader(data(3), 1)
    log.append_as_leader(data(3), 2)
    log.update_high_watermark(6)
    log.delete_records(2)
    assert log.leader_epochs.entries == [EpochEntry(1, 2), EpochEntry(2, 3)]
    log.delete_records(4)
    assert log.leader_epochs.entries == [EpochEntry(2, 4)]


def test_the_log_start_outlives_a_clean_stop() -> None:
    node = Node()
    append(node.log, data(2), data(2), data(2))
    node.log.delete_records(3)
    node.stop()
    assert checkpoint(node, "log-start-offset-checkpoint") == {PARTITION: 3}
    node.start()
    assert node.log.log_start_offset == 3
    assert offsets(log_records(node.log)) == [3, 4, 5]


def test_the_log_start_outlives_a_kill_once_it_was_checkpointed() -> None:
    node = Node()
    append(node.log, data(2), data(2), data(2))
    node.log.delete_records(4)
    node.clock.advance(60_000)
    node.manager.run_due()
    log = node.restart(clean=False)
    assert log.log_start_offset == 4
    assert offsets(log_records(log)) == [4, 5]


def test_a_clean_stop_leaves_whole_files_though_all_was_deleted_before_any_flush() -> None:
    node = Node()
    log = node.create(PARTITION)
    log.append_as_leader(data(1), LEADER_EPOCH)
    log.update_high_watermark(log.log_end_offset)
    assert log.delete_records(-1) == log.log_end_offset == 1
    node.stop()
    # With the entry that closing puts into the time index.
    assert len(node.disk.read(node.path(name_of(0, ".timeindex")))) == 12
