"""Cleaning is killed at every file operation, with and without a power cut (compaction 16.9).

After each death the log is the one before the group that was being swapped or the one behind it:
the last value of each key is there, nothing else is new, and a second start changes nothing.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from dohle.core.seams import ManualClock
from dohle.records.batch import Record
from dohle.storage.cleaning.round_values import CleanerSettings
from dohle.storage.directory.manager import LogManager
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation
from dohle.storage.open_files import OpenFiles
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from tests.storage.cleaning.cleaning import (
    SETTINGS,
    clean,
    compacted,
    end,
    extent,
    is_subsequence,
    last_values,
    offsets_of,
    producers,
    put,
    read_all,
    tiny_map,
)
from tests.storage.logs import IDENTITY, NOW_MS, PARTITION, TOPIC_ID, log_batches

CONFIG = compacted(600)
LEFTOVERS = (".cleaned", ".swap", ".deleted")


def open_log(fs: SimulatedFileSystem, clock: ManualClock) -> tuple[LogManager, Log]:
    manager = LogManager(fs, clock=clock, rng=random.Random(3), open_files=OpenFiles(1))
    manager.open(["/data"], IDENTITY, lambda _: CONFIG)
    log = manager.get_or_create(PARTITION, TOPIC_ID, CONFIG)
    log.update_high_watermark(log.log_end_offset)
    return manager, log


def write(log: Log) -> None:
    """Several groups of small segments: updates, tombstones, transactions across segments."""
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), pid=1, sequence=0)
    put(log, (b"a", b"aborted"), pid=2, sequence=0, transactional=True)
    put(log, (b"b", b"2"), (b"d", None))
    log.roll()
    put(log, (b"c", b"aborted"), pid=2, sequence=1, transactional=True)
    put(log, (b"e", b"1"), pid=3, sequence=0, transactional=True)
    log.roll()
    end(log, 2, commit=False)
    put(log, (b"a", b"2"), (b"b", b"3"))
    log.roll()
    end(log, 3, commit=True)
    put(log, (b"f", b"x" * 100))
    put(log, (b"f", b"y" * 100))
    log.roll()
    put(log, (b"f", b"z" * 100), (b"g", b"1"))
    put(log, (b"g", b"2"), pid=1, sequence=3)
    log.roll()
    put(log, (b"h", b"1"))
    log.flush()


def prepared() -> tuple[ManualClock, SimulatedFileSystem]:
    clock = ManualClock(NOW_MS)
    fs = SimulatedFileSystem(clock)
    manager, log = open_log(fs, clock)
    write(log)
    for directory in manager.directories:
        directory.checkpoints.write_recovery_points()
    manager.release()
    fs.settle()
    return clock, fs


CLOCK, WRITTEN = prepared()


def work(fs: SimulatedFileSystem, clock: ManualClock, settings: CleanerSettings) -> None:
    """Two or more rounds, with the delayed deletions and another append between them."""
    manager, log = open_log(fs, clock)
    # Not flushed, so that the round has to do that.
    put(log, (b"n", b"1"), (b"n", b"2"))
    put(log, (b"n", b"3"), pid=8, sequence=0, transactional=True)
    end(log, 8, commit=False)
    log.roll()
    checkpoint = 0
    for _ in range(3):
        checkpoint = clean(log, checkpoint, settings=settings).end_offset
        clock.advance(2_000)
        manager.run_due()
    put(log, (b"h", b"2"))


def view(log: Log) -> tuple[list[Record], list[Record]]:
    return read_all(log), read_all(log, Isolation.TXN_COMMITTED)


def original() -> tuple[list[Record], list[Record], dict[bytes, bytes | None], object, object]:
    _, log = open_log(WRITTEN.copy(), CLOCK)
    everything, committed = view(log)
    return everything, committed, last_values(committed), extent(log), producers(log)


EVERYTHING, COMMITTED, LAST, EXTENT, PRODUCERS = original()


def check_recovery(fs: SimulatedFileSystem) -> None:
    manager, log = open_log(fs, CLOCK)
    everything, committed = view(log)
    everything = [record for record in everything if record.offset < len_written()]
    committed = [record for record in committed if record.offset < len_written()]
    values = last_values(committed)
    assert values == LAST
    assert is_subsequence(everything, EVERYTHING)
    assert is_subsequence(committed, COMMITTED)
    found = log_batches(log)
    bases = [b.base_offset for b in found]
    assert bases == sorted(set(bases))
    assert all(one.next_offset <= other.base_offset for one, other in pairwise(found))
    assert log.log_end_offset == found[-1].next_offset
    if log.log_end_offset == len_written():
        assert extent(log) == EXTENT
        assert producers(log) == PRODUCERS
    manager.release()
    before = fs.files()
    assert not any(path.endswith(LEFTOVERS) for path in before)
    manager, log = open_log(fs, CLOCK)
    assert log_batches(log) is not None
    manager.release()
    assert fs.files() == before
    _, log = open_log(fs, CLOCK)
    expected = last_values(read_all(log, Isolation.TXN_COMMITTED))
    clean(log)
    assert last_values(read_all(log, Isolation.TXN_COMMITTED)) == expected


def len_written() -> int:
    assert isinstance(EXTENT, tuple)
    return int(EXTENT[1])


def operations(settings: CleanerSettings) -> int:
    fs = WRITTEN.copy()
    work(fs, ManualClock(NOW_MS), settings)
    return fs.operations


def die_everywhere(settings: CleanerSettings, part: int, parts: int, seeds: int) -> None:
    for count in range(part, operations(settings), parts):
        fs = WRITTEN.copy()
        fs.cut_after_operations(count)
        with pytest.raises(SimulatedCrash):
            work(fs, ManualClock(NOW_MS), settings)
        crashed, dark = fs.copy(), fs.copy()
        crashed.crash()
        check_recovery(crashed)
        dark.power_loss_everything_unsynced_lost()
        check_recovery(dark)
        for seed in range(seeds):
            torn = fs.copy()
            torn.power_loss(random.Random(seed * 10_000 + count))
            check_recovery(torn)


def test_death_at_any_file_operation_leaves_the_log_before_or_after() -> None:
    die_everywhere(SETTINGS, 0, 3, 1)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("settings", [SETTINGS, tiny_map(3)], ids=["one round", "small map"])
def test_death_at_every_file_operation_leaves_the_log_before_or_after(
    part: int, settings: CleanerSettings
) -> None:
    die_everywhere(settings, part, 4, 4)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_a_power_cut_leaves_behind_the_cleaned_part_is_a_prefix(first: int) -> None:
    """Gaps of the cleaner's are below the recovery point, so others are losses (ADR 4)."""
    for seed in range(first, first + 50):
        rng, fs, clock = random.Random(seed), WRITTEN.copy(), ManualClock(NOW_MS)
        manager, log = open_log(fs, clock)
        log.roll()
        cleaned = clean(log).end_offset
        log.cleaner_offset = cleaned
        manager.directories[0].checkpoints.write_cleaner_offsets()
        before = offsets_of(log)
        for number in range(rng.randint(2, 8)):
            put(log, (b"new", b"%d" % number))
            if rng.random() < 0.6:
                log.roll()
            if rng.random() < 0.1:
                log.flush()
        flushed, end_offset = log.recovery_point, log.log_end_offset
        fs.power_loss(rng)
        _, log = open_log(fs, clock)
        assert max(cleaned, flushed) <= log.log_end_offset <= end_offset
        assert offsets_of(log) == before + list(range(cleaned, log.log_end_offset))


def test_the_work_swaps_groups_of_several_segments() -> None:
    fs = WRITTEN.copy()
    work(fs, ManualClock(NOW_MS), SETTINGS)
    bases = [path for path in fs.files() if path.endswith(".log")]
    assert len(bases) == 3
