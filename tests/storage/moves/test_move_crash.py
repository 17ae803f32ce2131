"""A log moves between directories, and the process dies at every file operation of it.

After each death the directories are opened three times over: as the process left them, with
everything unsynced lost, and with a random part of it lost. Each time exactly one log must be
found, a prefix of what had been written, with everything in it that had been flushed (after a mere
crash: everything acknowledged), and a move that was interrupted must come to its end.
"""

from __future__ import annotations

import random

import pytest

from dohle.core.ids import Uuid
from dohle.core.seams import ManualClock
from dohle.records.control import build_txn_marker
from dohle.storage.config import LogConfig
from dohle.storage.directory.manager import LogManager
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.log import Log
from dohle.storage.moves.move import ReplicaMove
from dohle.storage.moves.places import ReplicaAssignment
from dohle.storage.producers.state import AppendOrigin
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from tests.storage.crashes import (
    IDENTITY,
    PARTITION,
    TOPIC_ID,
    Expected,
    check_indexes,
    contents,
    data_batch,
    offset_of,
)

PATHS = ("/a", "/b")
CONFIG = LogConfig(
    segment_bytes=450, index_interval_bytes=100, file_delete_delay_ms=10, retention_ms=-1
)
UNASSIGNED = Uuid(bytes(15) + b"\x01")


def open_manager(fs: SimulatedFileSystem, clock: ManualClock, place: Uuid) -> LogManager:
    manager = LogManager(fs, clock=clock, rng=random.Random(3))
    manager.attach(PATHS, IDENTITY)
    manager.load(lambda _: CONFIG, lambda _: ReplicaAssignment(TOPIC_ID, place))
    return manager


class Workload:
    """The steps, in order; ``place`` is what the metadata log says, which is always on the disk."""

    def __init__(self, fs: SimulatedFileSystem, clock: ManualClock) -> None:
        self.fs = fs
        self.clock = clock
        self.expected = Expected()
        self.place = UNASSIGNED
        #: What was written to the checkpoints.
        self.log_start = 0
        self.manager: LogManager
        self._number = 0
        self._sequence = 0

    def run(self) -> None:
        self.manager = open_manager(self.fs, self.clock, self.place)
        self.manager.prefer(PARTITION, "/a")
        self.log = self.manager.get_or_create(PARTITION, TOPIC_ID, CONFIG, is_new=True)
        self.expected.exists = True
        self.append(4)
        self.flush()
        self.append_aborted()
        self.append(3)
        self.delete_records()
        self.move_to("/b")
        self.append(1)
        self.flush()
        self.append_aborted()
        self.append(2)
        self.move_to("/a", deleting=True)
        self.append(1)
        self.manager.flush_due_now()
        self.note_flushed()

    def append(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self._append(data_batch(self._number))

    def append_aborted(self) -> None:
        self._append(data_batch(1, sequence=self._sequence, transactional=True))
        self._sequence += 2
        marker = build_txn_marker(
            commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=2_000
        )
        self._append(bytearray(marker), AppendOrigin.COORDINATOR)

    def _append(self, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        expected = bytearray(batch)
        expected[0:8] = self.log.log_end_offset.to_bytes(8, "big")
        expected[12:16] = (2).to_bytes(4, "big")
        self.expected.appending = bytes(expected)
        guard = self.log.producer_state.start_transaction_verification(
            7, self._sequence, 0, False, 0
        )
        self.log.append_as_leader(
            batch, 2, origin=origin, verification_guard=guard, transaction_version=1
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        self.expected.contents.append(bytes(expected))
        self.expected.appending = None

    def flush(self) -> None:
        self.log.flush()
        self.note_flushed()

    def note_flushed(self) -> None:
        point = self.log.recovery_point
        flushed = sum(offset_of(batch) < point for batch in self.expected.contents)
        self.expected.flushed = max(self.expected.flushed, flushed)

    def delete_records(self, offset: int | None = None) -> None:
        self.expected.start = offset or offset_of(self.expected.contents[3]) + 1
        self.log.delete_records(self.expected.start)
        if offset is None:
            for directory in self.manager.directories:
                directory.checkpoints.write_log_start_offsets()
            self.log_start = self.expected.start

    def move_to(self, path: str, *, deleting: bool = False) -> None:
        target = next(d for d in self.manager.directories if d.path == path)
        source = self.manager.directory_of(PARTITION)
        assert source is not None
        move = ReplicaMove(self.log, source, target, TOPIC_ID)
        if deleting:
            self.copy_and_delete(move)
        self.catch_up(move, appends=3)
        # The metadata log is told.
        self.place = target.directory_id
        self.append(1)
        self.flush()
        self.catch_up(move, appends=1)
        names = move.finish()
        self.append(1)
        names.run()
        self.manager.run_due()
        self.clock.advance(20)
        self.manager.run_due()

    def copy_and_delete(self, move: ReplicaMove) -> None:
        """Copy one segment; then it goes, and so does one that was not copied."""
        _, second, third, *_ = self.log.segments.base_offsets
        while move.log_end_offset < second:
            job = move.next_job(300)
            assert job is not None
            move.complete(job, job.run())
        self.delete_records(third)
        assert delete_old_segments(self.log, self.clock.now_ms()) == 2

    def catch_up(self, move: ReplicaMove, appends: int) -> None:
        while (job := move.next_job(300)) is not None:
            if appends:
                self.append(1)
                appends -= 1
                delete_old_segments(self.log, self.clock.now_ms())
            missing = job.run()
            move.complete(job, missing)


def finish_interrupted(manager: LogManager, log: Log) -> None:
    for partition, target in manager.places.interrupted:
        source = manager.directory_of(partition)
        assert source is not None
        move = ReplicaMove(log, source, target, TOPIC_ID)
        while (job := move.next_job(300)) is not None:
            move.complete(job, job.run())
        move.finish().run()
        assert manager.directory_of(partition) is target


def check_recovery(workload: Workload, fs: SimulatedFileSystem, *, power_lost: bool) -> None:
    manager = open_manager(fs, workload.clock, workload.place)
    found = [d.logs[PARTITION] for d in manager.directories if PARTITION in d.logs]
    if not found:
        assert not workload.expected.flushed
        assert power_lost or not workload.expected.exists
        manager.release()
        return
    assert len(found) == 1
    log = found[0]
    assert log.log_start_offset >= workload.log_start
    before = contents(log)
    workload.expected.check(before, power_lost=power_lost)
    check_indexes(log, before)
    manager.release()
    # A second start changes nothing, a move that is begun anew ends, and the log goes on.
    manager = open_manager(fs, workload.clock, workload.place)
    again = manager.get(PARTITION)
    assert again is not None
    assert contents(again) == before
    place = manager.places.interrupted[0][1].directory_id if manager.places.interrupted else None
    finish_interrupted(manager, again)
    end = again.log_end_offset
    assert again.append_as_leader(data_batch(1), 3).first_offset == end
    manager.close()
    manager = open_manager(fs, workload.clock, place or workload.place)
    last = manager.get(PARTITION)
    assert last is not None
    after = contents(last)
    assert after[:-1] == before
    assert offset_of(after[-1]) == end
    check_indexes(last, after)
    manager.release()


def die_and_recover(operations: int) -> None:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock)
    fs.cut_after_operations(operations)
    workload = Workload(fs, clock)
    with pytest.raises(SimulatedCrash):
        workload.run()
    crashed, dark, torn = fs.copy(), fs.copy(), fs.copy()
    crashed.crash()
    check_recovery(workload, crashed, power_lost=False)
    dark.power_loss_everything_unsynced_lost()
    check_recovery(workload, dark, power_lost=True)
    torn.power_loss(random.Random(operations))
    check_recovery(workload, torn, power_lost=True)


def whole_run() -> SimulatedFileSystem:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock)
    Workload(fs, clock).run()
    return fs


WHOLE = whole_run()


def test_the_workload_itself_moves_there_and_back() -> None:
    names = [path for path in WHOLE.files() if path.endswith(".log")]
    assert {path.split("/")[1] for path in names} == {"a"}
    assert any(path.endswith(".txnindex") for path in WHOLE.files())
    assert not any("-future" in path or "-delete" in path for path in WHOLE.files())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_death_at_every_file_operation_of_a_move_loses_nothing(part: int) -> None:
    for operations in range(part, WHOLE.operations, 4):
        die_and_recover(operations)
