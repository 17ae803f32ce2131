"""Flushes: when one is due, what it brings to the disk, and what may happen beside it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.pending_flush import PendingFlush
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.flush import FlushSchedule
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    PARTITION,
    Node,
    append,
    append_marker,
    append_transactional,
    data,
    log_batches,
    log_records,
    name_of,
    offsets,
    property_test,
    refuses,
)

PID = 17


def only(found: list[PendingFlush]) -> PendingFlush:
    (due,) = found
    return due


def abort_and_roll(node: Node) -> None:
    """Leave an aborted transaction at 0 and 1 in a segment that is closed."""
    append_transactional(node.log, PID, 0)
    append_marker(node.log, PID, commit=False)
    node.log.roll()


def knows_all(node: Node) -> bool:
    """Tell whether the first segment's time and transaction indexes are what they were."""
    log = node.log
    by_time = log_read.find_by_timestamp(log, NOW_MS)
    aborted = [
        (one.first_offset, one.last_offset)
        for one in log_read.aborted_transactions(log.segments, 0, 2)
    ]
    return by_time is not None and by_time.offset == 0 and aborted == [(0, 1)]


# When one is due


def test_nobody_is_asked_for_a_flush_who_does_not_want_one() -> None:
    node = Node()
    for number in range(3):
        append(node.create(TopicPartition(TopicName("orders"), number)), data(2))
    node.clock.advance(10**9)
    assert node.manager.due_flushes() == []


def test_a_roll_is_due_at_once_and_only_once() -> None:
    node = Node()
    append(node.log, data(2))
    node.log.roll()
    assert node.manager.next_due_ms() == NOW_MS
    due = only(node.manager.due_flushes())
    assert node.manager.due_flushes() == []
    node.log.roll()
    append(node.log, data(1))
    node.log.roll()
    assert node.manager.due_flushes() == []
    assert node.manager.next_due_ms() > NOW_MS
    due.run()
    due.complete()
    # What was rolled while it was in flight comes next.
    assert node.log.recovery_point == 2
    assert node.manager.next_due_ms() == NOW_MS
    node.manager.flush_due_now()
    assert node.log.recovery_point == 3
    assert node.manager.due_flushes() == []


def test_flush_ms_counts_from_the_first_append_behind_the_last_flush() -> None:
    node = Node(LogConfig(flush_ms=1_000))
    append(node.log, data(1))
    node.clock.advance(600)
    append(node.log, data(1))
    assert node.manager.next_due_ms() == NOW_MS + 1_000
    node.clock.advance(400)
    node.manager.flush_due_now()
    assert node.log.recovery_point == 2
    node.clock.advance(5_000)
    assert node.manager.due_flushes() == []
    append(node.log, data(1))
    assert node.manager.next_due_ms() == NOW_MS + 7_000


def test_a_flush_made_before_its_time_leaves_nothing_due() -> None:
    node = Node(LogConfig(flush_ms=1_000))
    append(node.log, data(1))
    node.log.flush()
    node.clock.advance(1_000)
    assert node.manager.due_flushes() == []
    append(node.log, data(1))
    assert node.manager.next_due_ms() == NOW_MS + 2_000


def test_a_roll_does_not_put_off_what_flush_ms_asks_for() -> None:
    node = Node(LogConfig(flush_ms=1_000))
    append(node.log, data(1))
    node.log.roll()
    append(node.log, data(1))
    node.manager.flush_due_now()
    assert node.log.recovery_point == 1
    assert node.manager.next_due_ms() == NOW_MS + 1_000
    node.clock.advance(1_000)
    node.manager.flush_due_now()
    assert node.log.recovery_point == 2


def test_what_was_not_flushed_before_a_kill_comes_due_after_it() -> None:
    node = Node(LogConfig(flush_ms=1_000))
    append(node.log, data(2))
    log = node.restart(clean=False)
    assert log.recovery_point == 0
    node.clock.advance(1_000)
    node.manager.flush_due_now()
    assert log.recovery_point == 2


def test_flush_ms_can_be_changed_while_records_wait() -> None:
    node = Node()
    append(node.log, data(1))
    node.log.update_config(LogConfig(flush_ms=1_000))
    node.clock.advance(999)
    assert node.manager.due_flushes() == []
    node.log.update_config(LogConfig(flush_ms=50))
    node.clock.advance(50)
    node.manager.flush_due_now()
    assert node.log.recovery_point == 1


@property_test(200)
@given(st.lists(st.tuples(st.sampled_from("atlf"), st.integers(0, 3), st.integers(0, 9))))
def test_the_schedule_hands_out_each_log_at_its_earliest_wish(
    steps: list[tuple[str, int, int]],
) -> None:
    schedule: FlushSchedule[int] = FlushSchedule()
    wishes: dict[int, int] = {}
    in_flight: set[int] = set()
    for action, log, time_ms in steps:
        if action == "a":
            schedule.flush_at(log, time_ms)
            if log not in in_flight:
                wishes[log] = min(wishes.get(log, time_ms), time_ms)
        elif action == "t":
            due = {one for one, due_ms in wishes.items() if due_ms <= time_ms}
            taken = schedule.take(time_ms)
            assert [wishes[one] for one in taken] == sorted(wishes[one] for one in due)
            assert set(taken) == due
            in_flight |= due
            wishes = {one: due_ms for one, due_ms in wishes.items() if one not in due}
        elif action == "l":
            assert schedule.landed(log) is (log in in_flight)
            in_flight.discard(log)
        else:
            schedule.forget(log)
            wishes.pop(log, None)
            in_flight.discard(log)
        assert schedule.next_due_ms == min(wishes.values(), default=None)


# What happens beside it


def test_appends_that_were_held_are_not_written_by_the_thread_that_flushes() -> None:
    node = Node(LogConfig(flush_ms=1_000))
    append(node.log, data(1))
    node.clock.advance(1_000)
    unwritten = data(1)
    node.log.append_as_leader(memoryview(unwritten), LEADER_EPOCH, defer_write=True)
    due = only(node.manager.due_flushes())
    later = data(1)
    node.log.append_as_leader(memoryview(later), LEADER_EPOCH, defer_write=True)

    def answer_and_use_buffers_again() -> None:
        node.log.write_appends()
        unwritten[:] = later[:] = b"\xee" * BATCH_SIZE

    log_file = node.path(name_of(0, ".log"))
    node.disk.interrupt(Operation.SYNC, log_file, answer_and_use_buffers_again)
    node.disk.trace.clear()
    due.run()
    # The one write is that of the step above.
    assert node.disk.trace == [
        (Operation.SYNC, log_file),
        (Operation.WRITE, log_file),
        # The first flush of a partition also brings its folder and whose it is to the disk.
        (Operation.SYNC, node.path("partition.metadata")),
        (Operation.SYNC_DIR, node.folder),
        (Operation.SYNC_DIR, "/data"),
    ]
    due.complete()
    assert node.log.recovery_point == 2
    assert [one.base_offset for one in log_batches(node.log)] == [0, 1, 2]


def delete_and_remove(node: Node) -> None:
    node.manager.delete(PARTITION)
    node.manager.run_due()


BESIDE: dict[str, Callable[[Node], object]] = {
    "deleted": lambda node: node.manager.delete(PARTITION),
    "deleted and gone": delete_and_remove,
    "put aside": lambda node: node.manager.mark_stray(PARTITION),
    "retained": lambda node: delete_old_segments(node.log, NOW_MS + 10**9),
    "truncated": lambda node: node.log.truncate_to(1),
    "begun anew": lambda node: node.log.truncate_fully_and_start_at(50),
    "stopped and started": lambda node: node.restart(clean=True),
}


@pytest.mark.parametrize("when", ["before", "within"])
@pytest.mark.parametrize("step", BESIDE)
def test_a_log_whose_files_go_during_its_flush_does_no_harm(step: str, when: str) -> None:
    node = Node(LogConfig(flush_ms=1, retention_ms=1_000, file_delete_delay_ms=0))
    append(node.log, data(1), data(1))
    node.log.roll()
    append(node.log, data(1))
    node.clock.advance(1)
    due = only(node.manager.due_flushes())
    if when == "before":
        BESIDE[step](node)
    else:
        node.disk.interrupt(Operation.SYNC, node.folder, lambda: BESIDE[step](node))
    due.run()
    due.complete()
    assert node.manager.offline_directories == {}
    node.manager.flush_due_now()
    append(node.log, data(1))
    node.log.flush()
    expected = offsets(log_records(node.log))
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert offsets(log_records(node.log)) == expected


def test_a_file_that_went_during_its_flush_does_not_come_back_in_part() -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    append(node.log, *[data(1) for _ in range(5)])
    due = only(node.manager.due_flushes())
    node.log.delete_records(2)
    delete_old_segments(node.log, NOW_MS)
    due.run()
    due.complete()
    assert node.log.recovery_point == 4
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert offsets(log_records(node.log)) == [2, 3]


def test_a_flush_that_fails_takes_the_directory_offline() -> None:
    node = Node()
    append(node.log, data(2))
    node.log.roll()
    due = only(node.manager.due_flushes())
    node.disk.fail(Operation.SYNC, "/data", errno.EIO)
    with pytest.raises(OSError, match="Input/output") as caught:
        due.run()
    assert node.manager.offline_directories == {}
    due.complete(caught.value)
    assert "Input/output" in node.manager.offline_directories["/data"]
    assert node.log.recovery_point == 0
    assert node.manager.due_flushes() == []


def test_flush_due_now_does_the_same_in_one_step() -> None:
    node = Node()
    append(node.log, data(2))
    node.log.roll()
    node.disk.fail(Operation.SYNC, "/data", errno.EIO)
    node.manager.flush_due_now()
    assert node.manager.offline_directories.keys() == {"/data"}


def test_a_snapshot_is_synced_though_an_earlier_flush_is_still_under_way() -> None:
    node = Node()
    append(node.log, data(2))
    node.log.roll()
    only(node.manager.due_flushes())
    node.log.flush()
    assert node.log.recovery_point == 2
    node.disk.power_loss_everything_unsynced_lost()
    assert name_of(2, ".snapshot") in node.names()


def test_a_flush_is_good_in_a_folder_that_a_killed_process_has_made() -> None:
    node = Node(LogConfig(flush_messages=1))
    node.create(PARTITION)
    append(node.restart(clean=False), data(2))
    assert node.log.recovery_point == 2
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert offsets(log_records(node.log)) == [0, 1]


# Indexes


@pytest.mark.parametrize("later", [False, True])
def test_the_indexes_of_a_segment_that_was_flushed_before_its_roll_survive_a_power_cut(
    later: bool,
) -> None:
    node = Node(LogConfig(flush_messages=1))
    abort_and_roll(node)
    if later:
        append(node.log, data(1), data(1))
    node.manager.directories[0].checkpoints.write_recovery_points()
    assert node.log.recovery_point == node.log.log_end_offset
    disk = node.disk
    for seed in range(60):
        node.fs = node.disk = disk.copy()
        node.disk.power_loss(random.Random(seed))
        node.start()
        assert knows_all(node)
    node.fs = node.disk = disk
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert knows_all(node)


def test_the_indexes_of_a_segment_that_is_closed_during_its_flush_survive_a_power_cut() -> None:
    node = Node()
    append_transactional(node.log, PID, 0)
    append_marker(node.log, PID, commit=False)
    job = node.log.prepare_flush()
    assert job is not None
    node.disk.interrupt(Operation.SYNC, node.folder, node.log.roll)
    job.run()
    node.log.complete_flush(job)
    node.manager.directories[0].checkpoints.write_recovery_points()
    later = node.disk.copy()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert knows_all(node)
    node.fs = node.disk = later
    node.disk.crash()
    node.start()
    node.log.flush()
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert node.log.recovery_point == 2
    assert knows_all(node)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("then", ["at once", "flushed", "stopped"])
def test_what_a_start_repaired_below_the_recovery_point_survives_a_power_cut(
    suffix: str, then: str
) -> None:
    node = Node()
    abort_and_roll(node)
    append(node.log, data(1))
    node.stop()
    name = name_of(0, suffix)
    if suffix == ".txnindex":
        node.put(name, node.files(name)[name] + b"?")
    else:
        node.remove(name)
    node.disk.settle()
    node.start()
    assert knows_all(node)
    if then == "flushed":
        append(node.log, data(1))
        node.log.flush()
        node.manager.directories[0].checkpoints.write_recovery_points()
    elif then == "stopped":
        node.stop()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert knows_all(node)


@pytest.mark.parametrize("damage", ["missing .index", "corrupt .txnindex"])
def test_a_repair_that_a_crash_cuts_short_is_made_again(damage: str) -> None:
    node = Node()
    abort_and_roll(node)
    append(node.log, data(1))
    node.stop()
    if damage == "missing .index":
        node.remove(name_of(0, ".index"))
    else:
        name = name_of(0, ".txnindex")
        node.put(name, node.files(name)[name] + b"?")
    node.disk.settle()
    disk = node.disk
    for count in range(200):
        for power_lost in (False, True):
            node.fs = node.disk = disk.copy()
            node.disk.cut_after_operations(count)
            with suppress(SimulatedCrash):
                node.start()
            done = not node.disk.crashed
            if power_lost:
                node.disk.power_loss_everything_unsynced_lost()
            else:
                node.disk.crash()
            node.start()
            assert knows_all(node)
        if done:
            break
    else:
        pytest.fail("the start does not come to an end")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_was_rebuilt_for_a_reader_survives_a_crash_at_any_point(suffix: str) -> None:
    node = Node(LogConfig(segment_bytes=5 * BATCH_SIZE, index_interval_bytes=50))
    append(node.log, *[data(1, timestamp=NOW_MS + number) for number in range(8)])
    node.stop()
    good = node.files(name_of(0, suffix))
    node.put(name_of(0, suffix), b"\xff" * 24)
    node.disk.settle()
    disk = node.disk
    for count in range(200):
        node.fs = node.disk = disk.copy()
        node.start()
        node.disk.cut_after_operations(count)
        with suppress(SimulatedCrash):
            for number in range(8):
                log_read.find_by_timestamp(node.log, NOW_MS + number)
        done = not node.disk.crashed
        node.disk.power_loss_everything_unsynced_lost()
        node.start()
        for number in range(8):
            found = log_read.find_by_timestamp(node.log, NOW_MS + number)
            assert found is not None
            assert found.offset == number
        assert node.files(name_of(0, suffix)) == good
        if done:
            return
    pytest.fail("the lookups do not come to an end")


def test_an_index_whose_segment_cannot_be_scanned_is_left_as_it_was() -> None:
    node = Node(LogConfig(segment_bytes=5 * BATCH_SIZE, index_interval_bytes=50))
    append(node.log, *[data(1, timestamp=NOW_MS + number) for number in range(8)])
    node.stop()
    node.put(name_of(0, ".timeindex"), b"\xff" * 13)
    node.disk.flip_bit(node.path(name_of(0, ".log")), 2 * BATCH_SIZE + 16, 3)
    before = node.files(".index", ".timeindex")
    node.start()
    for _ in range(2):
        refuses(ErrorCode.CORRUPT_MESSAGE, lambda: log_read.find_by_timestamp(node.log, NOW_MS))
    assert node.files(".index", ".timeindex") == before
