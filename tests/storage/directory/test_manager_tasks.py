from __future__ import annotations

import errno

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition, Uuid
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.storage.config import LogConfig, LogManagerConfig
from dohle.storage.directory.checkpoints import read_offsets
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import (
    NOW_MS,
    PARTITION,
    Node,
    append,
    batch,
    data,
    log_records,
    offsets,
    refuses,
)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"


def partition(number: int) -> TopicPartition:
    return TopicPartition(TopicName("orders"), number)


def names(node: Node) -> set[str]:
    return {entry.name for entry in node.fs.list_dir("/data")}


# Recurring work

CONFIG = LogManagerConfig(
    log_initial_task_delay_ms=1_000,
    replica_high_watermark_checkpoint_interval_ms=5_000,
    log_flush_offset_checkpoint_interval_ms=60_000,
    log_flush_start_offset_checkpoint_interval_ms=70_000,
    log_retention_check_interval_ms=300_000,
    producer_id_expiration_check_interval_ms=600_000,
)


def test_checkpoints_are_written_at_their_intervals() -> None:
    """G23: high watermarks each 5 s."""
    node = Node(manager_config=CONFIG)
    written: dict[str, list[int]] = {}
    append(node.log, data(1))
    while node.manager.next_due_ms() <= NOW_MS + 145_000:
        node.clock.advance(node.manager.next_due_ms() - node.clock.now_ms())
        node.disk.trace.clear()
        node.manager.run_due()
        for operation, path in node.disk.trace:
            if operation is Operation.RENAME:
                name = path.removeprefix("/data/").removesuffix(".later.tmp")
                written.setdefault(name, []).append(node.clock.now_ms() - NOW_MS)
    assert written == {
        HIGH_WATERMARKS: list(range(1_000, 145_001, 5_000)),
        RECOVERY_POINTS: [1_000, 61_000, 121_000],
        LOG_STARTS: [1_000, 71_000, 141_000],
    }


def test_nothing_is_done_before_it_is_due() -> None:
    node = Node(manager_config=CONFIG)
    append(node.log, data(1))
    assert node.manager.next_due_ms() == NOW_MS + 1_000
    node.disk.trace.clear()
    node.clock.advance(999)
    node.manager.run_due()
    assert node.disk.trace == []
    assert node.manager.next_due_ms() == NOW_MS + 1_000


def test_checkpoints_hold_what_the_logs_are_at() -> None:
    """G23: a replica begins at the high watermark of the checkpoint."""
    node = Node(manager_config=CONFIG)
    append(node.log, data(2), data(2))
    node.log.flush(2)
    node.log.delete_records(1)
    node.log.append_as_leader(data(1), 9)
    node.clock.advance(1_000)
    node.manager.run_due()
    for name, offset in ((RECOVERY_POINTS, 2), (HIGH_WATERMARKS, 4), (LOG_STARTS, 1)):
        assert read_offsets(node.fs, f"/data/{name}") == {PARTITION: offset}
    # A kill takes the log back to the checkpoints, but for what the log itself can tell.
    log = node.restart(clean=False)
    assert (log.recovery_point, log.high_watermark, log.log_start_offset) == (2, 4, 1)
    assert log.log_end_offset == 5


def test_producers_that_were_idle_for_too_long_are_forgotten() -> None:
    node = Node(manager_config=LogManagerConfig(producer_id_expiration_ms=1_000_000))
    log = node.log
    append(log, batch(pid=5, epoch=0, sequence=0))
    append(log, batch([NOW_MS + 600_000], pid=6, epoch=0, sequence=0))
    node.clock.advance(999_999)
    node.manager.run_due()
    assert log.producer_state.producers.keys() == {5, 6}
    node.clock.advance(600_000)
    node.manager.run_due()
    assert log.producer_state.producers.keys() == {6}
    # A producer that nothing is known of may go on with any sequence.
    append(log, batch(pid=5, epoch=0, sequence=40))


def damage_first_segment(node: Node, folder: str) -> None:
    """Let a segment be beyond repair: its time index is no index, its log no log."""
    base = f"/data/{folder}/{'0' * 20}"
    node.disk.flip_bit(f"{base}.log", 16, 3)
    node.disk.put(f"{base}.timeindex", bytes(13))


def test_a_log_that_is_damaged_does_not_keep_others_from_retention(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(LogConfig(retention_ms=1_000))
    for number in range(3):
        log = node.create(partition(number))
        for _ in range(3):
            append(log, data(1))
            log.roll()
    node.stop()
    damage_first_segment(node, "orders-1")
    node.start()
    node.clock.advance(10**9)
    node.manager.run_due()
    counts = [len(node.create(partition(number)).segments) for number in range(3)]
    assert counts == [1, 4, 1]
    assert node.manager.offline_directories == {}
    assert any("retention of orders-1" in record.getMessage() for record in caplog.records)
    append(node.create(partition(1)), data(1))


class AdjustableClock(ManualClock):
    """A clock whose wall time can be set, while intervals go on."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def test_a_wall_clock_that_is_set_back_holds_nothing_up() -> None:
    node = Node(LogConfig(flush_ms=1_000, file_delete_delay_ms=500), manager_config=CONFIG)
    node.clock = clock = AdjustableClock(NOW_MS)
    clock.ahead_ms = 10**9
    node.restart(clean=True)
    append(node.log, data(1))
    doomed = node.create(partition(1))
    node.manager.delete(doomed.partition)
    clock.ahead_ms = -(10**9)
    clock.advance(1_000)
    node.disk.trace.clear()
    node.manager.run_due()
    node.manager.flush_due_now()
    assert node.log.recovery_point == 1
    assert not node.fs.exists(doomed.directory)
    assert read_offsets(node.fs, f"/data/{HIGH_WATERMARKS}") == {PARTITION: 1}


# Partitions that are not ours any more


def test_a_stray_partition_is_kept_under_another_name_and_not_loaded() -> None:
    """F6."""
    node = Node()
    append(node.log, data(2), data(2))
    node.log.delete_records(1)
    append(node.create(partition(1)), data(1))
    before = {name: found for name, found in node.files().items() if name.endswith(".log")}
    node.manager.mark_stray(PARTITION)
    assert node.manager.get(PARTITION) is None
    (stray,) = [name for name in names(node) if name.endswith("-stray")]
    assert stray.startswith("orders-0.")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        assert PARTITION not in read_offsets(node.fs, f"/data/{name}")
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert [log.partition for log in node.manager] == [partition(1)]
    for name, found in before.items():
        assert node.fs.read(f"/data/{stray}/{name}") == found
    # The partition may come back, and is another then.
    log = node.manager.get_or_create(PARTITION, Uuid(bytes(15) + b"\xcc"), node.config)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    node.clock.advance(10**9)
    node.manager.run_due()
    assert stray in names(node)


def test_putting_aside_what_is_not_there_changes_nothing() -> None:
    node = Node()
    before = node.disk.files()
    node.manager.mark_stray(PARTITION)
    assert node.disk.files() == before


# Deleting partitions


def test_a_deleted_partition_is_renamed_now_and_removed_after_the_delay() -> None:
    node = Node(LogConfig(file_delete_delay_ms=30_000))
    append(node.log, data(2))
    append(node.create(partition(1)), data(1))
    node.manager.delete(PARTITION)
    assert node.manager.get(PARTITION) is None
    (doomed,) = [name for name in names(node) if name.startswith("orders-0")]
    assert doomed.startswith("orders-0.")
    assert doomed.endswith("-delete")
    assert len(doomed) == len("orders-0.") + 32 + len("-delete")
    assert node.fs.read(f"/data/{doomed}/{'0' * 20}.log")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert PARTITION not in read_offsets(node.fs, f"/data/{name}")
    assert node.manager.next_due_ms() == NOW_MS + 30_000
    node.clock.advance(29_999)
    node.manager.run_due()
    assert doomed in names(node)
    node.clock.advance(1)
    node.manager.run_due()
    assert doomed not in names(node)
    assert "orders-1" in names(node)


def test_a_partition_of_the_same_name_may_come_at_once() -> None:
    node = Node()
    append(node.log, data(2), data(2))
    node.log.delete_records(3)
    node.log.flush()
    node.manager.delete(PARTITION)
    log = node.manager.get_or_create(PARTITION, Uuid(bytes(15) + b"\xcc"), node.config)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
    append(log, data(1))
    node.clock.advance(node.config.file_delete_delay_ms)
    node.manager.run_due()
    assert offsets(log_records(log)) == [0]
    node.kill()
    node.start()
    found = node.manager.get(PARTITION)
    assert found is not None
    assert offsets(log_records(found)) == [0]


@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_whose_deletion_was_not_finished_is_removed_after_a_start(clean: bool) -> None:
    node = Node()
    append(node.log, data(2))
    append(node.create(partition(1)), data(1))
    node.manager.delete(PARTITION)
    if clean:
        node.stop()
    else:
        node.kill()
    node.start()
    assert node.manager.get(PARTITION) is None
    node.manager.run_due()
    assert {name for name in names(node) if name.startswith("orders")} == {"orders-1"}


@pytest.mark.parametrize("clean_before", [True, False])
def test_a_crash_during_a_deletion_leaves_nothing_to_a_partition_of_the_same_name(
    clean_before: bool,
) -> None:
    node = Node()
    append(node.log, *[data(1) for _ in range(10)])
    node.log.delete_records(8)
    node.restart(clean=clean_before)
    node.log.flush()
    directory = node.manager.directories[0]
    directory.checkpoints.write_recovery_points()
    directory.checkpoints.write_log_start_offsets()
    directory.checkpoints.write_high_watermarks()
    # The folder has its new name, the checkpoints still have its entries.
    node.disk.fail(
        Operation.CREATE, lambda path: path.endswith("checkpoint.deleted.tmp"), errno.EIO
    )
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: node.manager.delete(PARTITION))
    node.disk.heal()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS):
        assert read_offsets(node.fs, f"/data/{name}") == {}
    log = node.manager.get_or_create(PARTITION, Uuid(bytes(15) + b"\xcc"), node.config)
    append(log, *[data(1) for _ in range(5)])
    log.flush()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    found = node.manager.get(PARTITION)
    assert found is not None
    assert offsets(log_records(found)) == [0, 1, 2, 3, 4]


def test_deleting_what_is_not_there_changes_nothing() -> None:
    node = Node()
    append(node.create(partition(1)), data(1))
    before = node.disk.files()
    node.manager.delete(PARTITION)
    assert node.disk.files() == before


# Stopping


def stopped(node: Node) -> list[str]:
    """Stop, and return the paths that were synced for it."""
    begin, syncs = len(node.disk.trace), (Operation.SYNC, Operation.SYNC_DIR)
    node.stop()
    return [path for operation, path in node.disk.trace[begin:] if operation in syncs]


def test_a_log_that_nobody_has_written_to_is_not_synced_by_a_stop() -> None:
    node = Node()
    other = TopicPartition(TopicName("other"), 0)
    for log in (node.log, node.create(other)):
        append(log, data())
    assert any("orders-0" in path for path in stopped(node))
    node.start()
    # The begin of an epoch that has no record yet is known from the metadata.
    node.log.leader_epochs.assign(9, node.log.log_end_offset, sync=False)
    append(node.create(other), data())
    synced = stopped(node)
    assert not any("orders-0" in path for path in synced)
    assert any("other-0" in path for path in synced)
    node.start()
    assert offsets(log_records(node.log)) == [0]
    assert offsets(log_records(node.create(other))) == [0, 1]


def test_a_roll_without_a_record_is_synced_by_a_stop() -> None:
    node = Node()
    append(node.log, data())
    node.stop()
    node.start()
    node.log.roll()
    assert node.folder in stopped(node)


def test_what_was_flushed_is_not_synced_again_by_a_stop() -> None:
    node = Node()
    append(node.log, data())
    node.log.flush()
    synced = stopped(node)
    assert not any(path.endswith(".log") for path in synced)
    assert any(path.endswith(".timeindex") for path in synced)


def test_the_owner_may_run_the_syncs_of_a_stop_in_any_order() -> None:
    node = Node(paths=("/a", "/b"))
    partitions = [TopicPartition(TopicName("t"), index) for index in range(8)]
    for partition in partitions:
        append(node.create(partition), *(data() for _ in range(3)))

    closing = finish(node.manager.prepare_close())
    assert [len(each.flushes) for each in closing] == [4, 4]
    for each in reversed(closing):
        for work in each.rounds():
            for part in reversed(work):
                part()
        each.complete()
    node.manager.finish_close(broker_epoch=7)
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    for partition in partitions:
        assert offsets(log_records(node.create(partition))) == [0, 1, 2]
    assert all(one.had_clean_shutdown for one in node.manager.directories)


def test_a_log_whose_sync_fails_costs_its_directory_the_clean_stop() -> None:
    node = Node(paths=("/a", "/b"))
    partitions = [TopicPartition(TopicName("t"), index) for index in range(4)]
    for partition in partitions:
        append(node.create(partition), data())
    node.disk.fail(Operation.SYNC, "/a/t-0", errno.EIO)
    node.stop()
    assert not node.fs.exists("/a/.kafka_cleanshutdown")
    assert node.fs.exists("/b/.kafka_cleanshutdown")
