"""A log that moves to another directory: what it has in the new place, and who is not disturbed."""

from __future__ import annotations

import errno

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition, Uuid
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offsets
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.log import Log
from dohle.storage.moves.copy import CopyFailed
from dohle.storage.moves.move import TAIL_BYTES_MAX
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import (
    BATCH_SIZE,
    NOW_MS,
    PARTITION,
    Node,
    append,
    append_marker,
    append_transactional,
    batch,
    data,
    log_bytes,
    log_records,
    offsets,
    refuses,
)
from tests.storage.moves.moving import assign, begin, catch_up, directory, two_directories


def move_to(node: Node, path: str) -> None:
    move = begin(node, path)
    catch_up(move)
    move.finish().run()


def test_a_log_has_everything_in_its_new_place() -> None:
    node = two_directories()
    log = node.log
    append(log, *(data(2) for _ in range(12)))
    append_transactional(log, 5, 0)
    append_marker(log, 5, commit=False)
    append(log, batch(pid=6, epoch=1, sequence=0))
    log.append_as_leader(data(), 7)
    log.update_high_watermark(log.log_end_offset)
    log.delete_records(3)
    before = (
        log_bytes(log),
        log.leader_epochs.entries,
        dict(log.producer_state.producers),
        log_read.aborted_transactions(log.segments, 0, 100),
        (log.log_start_offset, log.high_watermark, log.log_end_offset),
    )
    move_to(node, "/b")

    def now(found: Log) -> tuple[object, ...]:
        return (
            log_bytes(found),
            found.leader_epochs.entries,
            dict(found.producer_state.producers),
            log_read.aborted_transactions(found.segments, 0, 100),
            (found.log_start_offset, found.high_watermark, found.log_end_offset),
        )

    assert node.log is log
    assert log.directory == "/b/orders-0"
    assert now(log) == before
    assert all(segment.path.startswith("/b/orders-0/") for segment in log.segments)
    assert append(log, batch(pid=6, epoch=1, sequence=0))[0].is_duplicate
    for clean in (True, False):
        node.restart(clean=clean)
        assert node.log.directory == "/b/orders-0"
        assert now(node.log)[:2] == before[:2]
        assert now(node.log)[3:] == before[3:]
        assert append(node.log, batch(pid=6, epoch=1, sequence=0))[0].is_duplicate


def test_the_old_folder_goes_after_the_delay_and_nothing_of_it_is_inherited() -> None:
    node = two_directories()
    append(node.log, *(data() for _ in range(7)))
    node.log.flush()
    directory(node, "/a").checkpoints.write_recovery_points()
    move_to(node, "/b")
    (left,) = [path for path in node.fs.list_dir("/a") if path.is_dir]
    assert left.name.startswith("orders-0.")
    assert left.name.endswith("-delete")
    node.clock.advance(60_000)
    node.manager.run_due()
    assert not [path for path in node.fs.list_dir("/a") if path.is_dir]
    # A log of that name that comes to the directory again begins with its own numbers.
    node.manager.delete(PARTITION)
    node.manager.prefer(PARTITION, "/a")
    again = Uuid(bytes(reversed(range(16))))
    log = node.create(PARTITION, again)
    assert log.directory == "/a/orders-0"
    append(log, data())
    node.kill()
    node.start()
    assert offsets(log_records(node.create(PARTITION, again))) == [0]


def test_appends_rolls_and_deletions_go_on_while_it_is_copied() -> None:
    node = two_directories(
        LogConfig(segment_bytes=5 * BATCH_SIZE, retention_ms=-1, retention_bytes=8 * BATCH_SIZE)
    )
    log = node.log
    append(log, *(data() for _ in range(12)))
    move = begin(node)
    for _ in range(20):
        job = move.next_job(150)
        if job is None:
            break
        append(log, data())
        delete_old_segments(log, NOW_MS)
        move.complete(job, job.run())
    catch_up(move)
    move.finish().run()
    expected = log_bytes(log)
    assert log.segments.first.base_offset > 0
    names = {entry.name for entry in node.fs.list_dir("/b/orders-0")}
    logs = {name for name in names if name.endswith(".log")}
    assert logs == {f"{segment.base_offset:020d}.log" for segment in log.segments}
    node.restart(clean=False)
    assert log_bytes(node.log) == expected


def test_only_a_little_is_left_for_the_last_step() -> None:
    node = two_directories(LogConfig(retention_ms=-1))
    big = batch(value=bytes(100_000))
    append(node.log, *(bytearray(big) for _ in range(8)))
    move = begin(node)
    left = []
    while (job := move.next_job(200_000)) is not None:
        assert job.size <= 200_000
        move.complete(job, job.run())
        left.append(node.log.size - move.size)
    assert left == sorted(left, reverse=True)
    assert left[-1] <= TAIL_BYTES_MAX
    # So much may come while the last look is taken.
    append(node.log, bytearray(big))
    assert move.next_job(200_000) is None
    assert move.log_end_offset == 8
    move.finish()
    assert len(log_records(node.log)) == 9


def test_slices_that_were_read_before_stay_good() -> None:
    node = two_directories()
    append(node.log, *(data() for _ in range(3)))
    piece = log_read.read(node.log, 0, 1 << 20).slice
    assert piece is not None
    before = piece.read()
    move_to(node, "/b")
    node.clock.advance(60_000)
    node.manager.run_due()
    assert piece.read() == before


def test_a_flush_of_the_old_files_does_not_count_for_the_new() -> None:
    node = two_directories()
    append(node.log, data())
    move = begin(node)
    catch_up(move)
    append(node.log, data(), data())
    job = node.log.prepare_flush()
    assert job is not None
    job.run()
    move.finish()
    node.log.complete_flush(job)
    # What the source had flushed was synced with the move; the rest was not.
    assert node.log.recovery_point == 1
    assert node.log.prepare_flush() is not None


def test_flushes_that_were_due_are_due_in_the_new_place() -> None:
    node = two_directories(LogConfig(segment_bytes=2 * BATCH_SIZE, flush_ms=500, retention_ms=-1))
    append(node.log, *(data() for _ in range(5)))
    move_to(node, "/b")
    append(node.log, data())
    node.clock.advance(1_000)
    node.manager.flush_due_now()
    assert node.log.recovery_point == 6
    node.disk.power_loss_everything_unsynced_lost()
    node.manager.release()
    node.start()
    assert offsets(log_records(node.log)) == list(range(6))


def test_a_flush_that_was_on_its_way_to_the_old_files_is_due_in_the_new_place() -> None:
    node = two_directories(LogConfig(flush_ms=500, retention_ms=-1))
    append(node.log, data())
    move = begin(node)
    catch_up(move)
    append(node.log, data(), data())
    node.clock.advance(600)
    (due,) = node.manager.due_flushes()
    move.finish().run()
    due.run()
    due.complete()
    assert node.log.recovery_point == 1
    node.clock.advance(600)
    node.manager.flush_due_now()
    assert node.log.recovery_point == 3


def test_what_was_flushed_is_flushed_in_the_new_place() -> None:
    node = two_directories(LogConfig(flush_messages=1, retention_ms=-1))
    append(node.log, *(data() for _ in range(3)))
    move = begin(node)
    catch_up(move)
    append(node.log, data())
    assert move.next_job(1_000) is None
    assign(node, "/b")
    move.finish()
    append(node.log, data())
    node.disk.power_loss_everything_unsynced_lost()
    node.manager.release()
    node.start()
    assert offsets(log_records(node.log)) == list(range(5))
    assert node.log.directory == "/b/orders-0"


def test_a_log_that_was_truncated_is_copied_anew() -> None:
    node = two_directories()
    append(node.log, *(data() for _ in range(8)))
    move = begin(node)
    catch_up(move)
    node.log.truncate_to(2)
    append(node.log, batch(value=b"another"))
    catch_up(move)
    move.finish().run()
    expected = log_bytes(node.log)
    node.restart(clean=False)
    assert log_bytes(node.log) == expected
    assert offsets(log_records(node.log)) == [0, 1, 2]


def test_what_a_truncation_took_back_is_not_in_the_new_place() -> None:
    node = two_directories()
    log = node.log
    append(log, data(), data())
    append_transactional(log, 5, 0)
    append_marker(log, 5, commit=False)
    append(log, data(), data(), data())
    move = begin(node)
    catch_up(move)
    log.truncate_to(2)
    append(log, data(), data())
    catch_up(move)
    move.finish().run()
    assert log_read.aborted_transactions(log.segments, 0, 100) == []
    node.restart(clean=True)
    assert log_read.aborted_transactions(node.log.segments, 0, 100) == []
    assert offsets(log_records(node.log)) == [0, 1, 2, 3]


def test_copies_of_what_was_deleted_do_not_come_back_after_a_power_cut() -> None:
    node = two_directories()
    log = node.log
    append(log, *(data() for _ in range(18)))
    log.flush()
    log.update_high_watermark(log.log_end_offset)
    move = begin(node)
    job = move.next_job(5 * BATCH_SIZE)
    assert job is not None
    move.complete(job, job.run())
    # The first segment has been copied, the second never will be.
    log.delete_records(10)
    delete_old_segments(log, NOW_MS)
    assert log.segments.base_offsets == (10, 15)
    catch_up(move)
    assign(node, "/b")
    move.finish()
    # Of the two renames only the second has reached its disk.
    node.disk.sync_dir("/a")
    node.disk.power_loss_everything_unsynced_lost()
    node.manager.release()
    node.start()
    assert node.log.directory == "/b/orders-0"
    assert offsets(log_records(node.log)) == list(range(10, 18))


def test_a_stream_of_aborted_transactions_does_not_hold_a_move_up() -> None:
    node = two_directories(LogConfig(retention_ms=-1))
    log = node.log
    move = begin(node)
    for number in range(10):
        append_transactional(log, 5, number)
        append_marker(log, 5, commit=False)
        if (job := move.next_job(10_000)) is None:
            break
        move.complete(job, job.run())
    else:
        pytest.fail("there is always something left to copy")
    move.finish().run()
    append_transactional(log, 5, number + 1)
    append_marker(log, 5, commit=False)
    for clean in (True, False):
        found = log_read.aborted_transactions(node.log.segments, 0, 100)
        assert [each.last_offset for each in found] == list(range(1, log.log_end_offset, 2))
        node.restart(clean=clean)


def test_a_move_that_is_called_off_leaves_the_log_alone() -> None:
    node = two_directories()
    append(node.log, *(data() for _ in range(8)))
    move = begin(node)
    catch_up(move)
    assert directory(node, "/b").futures.paths == {PARTITION: move.folder}
    move.cancel()
    assert directory(node, "/b").futures.paths == {}
    node.manager.run_due()
    assert not [entry for entry in node.fs.list_dir("/b") if entry.is_dir]
    assert node.log.directory == "/a/orders-0"
    append(node.log, data())
    assert len(log_records(node.log)) == 9


@pytest.mark.parametrize("path", ["/a", "/b"])
def test_the_disk_that_fails_goes_offline(path: str) -> None:
    node = two_directories()
    append(node.log, data())
    move = begin(node)
    job = move.next_job(1_000)
    assert job is not None
    node.disk.fail([Operation.WRITE, Operation.READ, Operation.OPEN], path, errno.EIO)
    with pytest.raises(CopyFailed) as caught:
        job.run()
    assert caught.value.of_source == (path == "/a")
    assert move.failed(caught.value).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(node.manager.offline_directories) == [path]
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: move.next_job(1_000))


def test_a_disk_that_fails_at_the_last_step_leaves_the_log_where_it_was() -> None:
    node = two_directories()
    append(node.log, data())
    move = begin(node)
    catch_up(move)
    node.disk.fail(Operation.RENAME, "/b", errno.EIO)
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, move.finish)
    assert list(node.manager.offline_directories) == ["/b"]
    assert node.log.directory == "/a/orders-0"
    assert append(node.log, data())[0].first_offset == 1


def test_an_old_place_that_cannot_be_put_away_does_not_hold_up_the_log() -> None:
    node = two_directories()
    append(node.log, data())
    move = begin(node)
    catch_up(move)
    assign(node, "/b")
    node.disk.fail(Operation.RENAME, "/a", errno.EIO)
    move.finish().run()
    assert list(node.manager.offline_directories) == ["/a"]
    assert append(node.log, data())[0].first_offset == 1
    # The disk is mended, and both folders have the partition's name.
    node.kill()
    node.disk.heal()
    node.start()
    assert offsets(log_records(node.log)) == [0, 1]
    assert node.log.directory == "/b/orders-0"


def test_a_log_that_was_once_compacted_counts_as_such_in_its_new_place() -> None:
    node = two_directories()
    append(node.log, data(2))
    node.log.cleaner_offset = 1
    move_to(node, "/b")
    assert read_offsets(node.fs, f"/b/{CLEANER_OFFSET_CHECKPOINT}") == {PARTITION: 1}


def test_a_log_that_is_wished_elsewhere_is_made_there() -> None:
    node = two_directories()
    other = TopicPartition(TopicName("other"), 0)
    node.manager.prefer(other, "/a")
    assert node.create(other).directory == "/a/other-0"
