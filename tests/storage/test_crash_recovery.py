"""A small workload is killed at every byte it writes and at every file operation it makes.

After each death the log is opened three times over: as the process left it, with everything
unsynced lost, and with a random part of it lost, torn or reordered. Each time it must be a prefix
of what had been written, with everything in it that had been flushed (after a mere crash:
everything acknowledged), and a second recovery must change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from operator import methodcaller

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.ids import ProducerId
from dohle.core.seams import ManualClock
from dohle.records.control import build_txn_marker
from dohle.storage.config import LogConfig
from dohle.storage.directory.manager import LogManager
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.log import Log
from dohle.storage.open_files import OpenFiles
from dohle.storage.producers import snapshot_files
from dohle.storage.producers.state import AppendOrigin
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from tests.storage.crashes import (
    IDENTITY,
    PARTITION,
    TOPIC_ID,
    Expected,
    check_indexes,
    check_producers,
    contents,
    data_batch,
    offset_of,
)

#: That of the records: no producer is too old to be known.
NOW_MS = 1_000
CONFIG = LogConfig(
    segment_bytes=450, index_interval_bytes=100, file_delete_delay_ms=10, retention_ms=-1
)
#: In how many parts each byte is tried, and how many parts there are to one that is not ``long``.
PARTS, EVERY = 8, 4


def open_manager(fs: SimulatedFileSystem, clock: ManualClock) -> LogManager:
    # One open file: nearly every step finds its file closed.
    manager = LogManager(fs, clock=clock, rng=random.Random(3), open_files=OpenFiles(1))
    manager.open(["/data"], IDENTITY, lambda _: CONFIG)
    return manager


class Workload:
    """The steps, in order; ``expected`` is brought up to date around each of them."""

    def __init__(self, fs: SimulatedFileSystem, clock: ManualClock) -> None:
        self.fs = fs
        self.clock = clock
        self.expected = Expected()
        self.manager: LogManager

    def run(self) -> None:
        self.start()
        for number in range(4):
            self.append(data_batch(number))
        self.flush()
        self.append(data_batch(2, sequence=0))
        self.append(data_batch(0, sequence=3))
        self.append(data_batch(1, sequence=4, transactional=True))
        self.append(self.abort_marker(), AppendOrigin.COORDINATOR)
        self.due_flushes()
        self.checkpoint()
        for number in range(8, 12):
            self.append(data_batch(number))
        self.truncate(len(self.expected.contents) - 5)
        for number in range(12, 17):
            self.append(data_batch(number))
        self.flush()
        self.delete_records()
        self.restart_cleanly()
        for number in range(20, 23):
            self.append(data_batch(number))
        self.due_flushes()

    @property
    def log(self) -> Log:
        log = self.manager.get(PARTITION)
        assert log is not None
        return log

    def start(self) -> None:
        self.manager = open_manager(self.fs, self.clock)
        self.manager.get_or_create(PARTITION, TOPIC_ID, CONFIG)
        self.expected.exists = True

    def append(self, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        expected = bytearray(batch)
        expected[0:8] = self.log.log_end_offset.to_bytes(8, "big")
        expected[12:16] = (2).to_bytes(4, "big")
        self.expected.appending = bytes(expected)
        guard = self.log.producer_state.start_transaction_verification(
            ProducerId(7), 4, 0, supports_epoch_bump=False, now_ms=self.clock.now_ms()
        )
        self.log.append_as_leader(
            batch, 2, origin=origin, verification_guard=guard, transaction_version=1
        )
        self.expected.contents.append(bytes(expected))
        self.expected.appending = None

    def abort_marker(self) -> bytearray:
        return bytearray(
            build_txn_marker(
                commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=2_000
            )
        )

    def flush(self) -> None:
        self.log.flush()
        self.expected.flushed = len(self.expected.contents)

    def due_flushes(self) -> None:
        self.manager.flush_due_now()
        point = self.log.recovery_point
        self.expected.flushed = sum(offset_of(batch) < point for batch in self.expected.contents)

    def checkpoint(self) -> None:
        for directory in self.manager.directories:
            directory.checkpoints.write_recovery_points()
            directory.checkpoints.write_high_watermarks()

    def truncate(self, keep: int) -> None:
        self.expected.truncating_to = keep
        self.log.truncate_to(offset_of(self.expected.contents[keep]))
        del self.expected.contents[keep:]
        self.expected.flushed = min(self.expected.flushed, keep)
        self.expected.truncating_to = None

    def delete_records(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.expected.start = offset_of(self.expected.contents[6])
        self.log.delete_records(self.expected.start)
        delete_old_segments(self.log, self.clock.now_ms())
        self.clock.advance(20)
        self.manager.run_due()

    def restart_cleanly(self) -> None:
        self.manager.close()
        self.expected.flushed = len(self.expected.contents)
        self.manager = open_manager(self.fs, self.clock)


def check_recovery(workload: Workload, fs: SimulatedFileSystem, *, power_lost: bool) -> None:
    manager = open_manager(fs, workload.clock)
    log = manager.get(PARTITION)
    if log is None:
        # A new partition reaches the disk with its first flush.
        assert not workload.expected.flushed
        assert power_lost or not workload.expected.exists
        manager.release()
        return
    found = contents(log)
    workload.expected.check(found, power_lost=power_lost)
    check_indexes(log, found)
    check_producers(log, workload.expected)
    manager.release()
    before = fs.files()
    manager = open_manager(fs, workload.clock)
    manager.release()
    assert fs.files() == before
    assert_can_go_on(workload, fs)


def assert_can_go_on(workload: Workload, fs: SimulatedFileSystem) -> None:
    manager = open_manager(fs, workload.clock)
    log = manager.get(PARTITION)
    assert log is not None
    end = log.log_end_offset
    assert log.append_as_leader(data_batch(1), 3).first_offset == end
    manager.close()
    manager = open_manager(fs, workload.clock)
    log = manager.get(PARTITION)
    assert log is not None
    assert offset_of(contents(log)[-1]) == end
    manager.release()


def die_and_recover(prepare: Callable[[SimulatedFileSystem], None], seed: int) -> None:
    clock = ManualClock(NOW_MS)
    fs = SimulatedFileSystem(clock)
    prepare(fs)
    workload = Workload(fs, clock)
    with pytest.raises(SimulatedCrash):
        workload.run()
    crashed, dark, torn = fs.copy(), fs.copy(), fs.copy()
    crashed.crash()
    check_recovery(workload, crashed, power_lost=False)
    dark.power_loss_everything_unsynced_lost()
    check_recovery(workload, dark, power_lost=True)
    torn.power_loss(random.Random(seed))
    check_recovery(workload, torn, power_lost=True)


def whole_run() -> SimulatedFileSystem:
    clock = ManualClock(NOW_MS)
    fs = SimulatedFileSystem(clock)
    Workload(fs, clock).run()
    return fs


WHOLE = whole_run()


def test_the_workload_itself_touches_what_is_to_be_tested() -> None:
    names = {path.rpartition(".")[2] for path in WHOLE.files()}
    assert {"log", "index", "timeindex", "snapshot"} <= names
    assert sum(path.endswith(".log") for path in WHOLE.files()) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=() if part % EVERY == 0 else pytest.mark.long)
        for part in range(PARTS)
    ],
)
def test_death_at_every_byte_keeps_what_was_acknowledged(part: int) -> None:
    for count in range(part, WHOLE.bytes_written, PARTS):
        die_and_recover(methodcaller("cut_after_bytes", count), count)


@pytest.mark.parametrize("part", range(4))
def test_death_at_every_file_operation_keeps_what_was_acknowledged(part: int) -> None:
    for count in range(part, WHOLE.operations, 4):
        die_and_recover(methodcaller("cut_after_operations", count), count)


def test_so_does_death_where_snapshots_of_producers_are_written_by_the_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_files, "WRITTEN_AT_ONCE_MAX", 0)
    for count in range(0, whole_run().operations, 3):
        die_and_recover(methodcaller("cut_after_operations", count), count)


@settings(max_examples=150, deadline=None)
@given(count=st.integers(0, WHOLE.bytes_written - 1), seed=st.integers(0, 2**32))
def test_any_mixture_of_lost_and_torn_writes_leaves_a_prefix(count: int, seed: int) -> None:
    die_and_recover(lambda fs: fs.cut_after_bytes(count), seed)
