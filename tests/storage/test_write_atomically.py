"""A small file is replaced whole or not at all, wherever the process or the power goes away."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random

import pytest

from dohle.storage.files import write_atomically
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem

PATH = "/data/replication-offset-checkpoint"
OLD = b"old " * 500
NEW = b"new " * 700


def disk(old: bytes | None) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs("/data")
    fs.settle()
    if old is not None:
        fs.put(PATH, old)
    return fs


def found(fs: SimulatedFileSystem) -> bytes | None:
    return fs.read(PATH) if fs.exists(PATH) else None


def cut_disks(old: bytes | None, leftover: bytes | None) -> Iterator[SimulatedFileSystem]:
    """Yield a disk for every operation, and for many bytes, at which the write can be cut."""
    start = disk(old)
    if leftover is not None:
        start.put(PATH + ".tmp", leftover)
    whole = start.copy()
    write_atomically(whole, PATH, NEW)
    for operations in range(whole.operations):
        fs = start.copy()
        fs.cut_after_operations(operations)
        with pytest.raises(SimulatedCrash):
            write_atomically(fs, PATH, NEW)
        yield fs
    for count in range(0, whole.bytes_written, 97):
        fs = start.copy()
        fs.cut_after_bytes(count)
        with pytest.raises(SimulatedCrash):
            write_atomically(fs, PATH, NEW)
        yield fs


@pytest.mark.parametrize("old", [OLD, None])
@pytest.mark.parametrize("leftover", [None, b"torn by an earlier crash " * 200])
def test_whatever_is_cut_the_old_or_the_new_is_found(
    old: bytes | None, leftover: bytes | None
) -> None:
    rng = Random(1)
    for fs in cut_disks(old, leftover):
        crashed = fs.copy()
        assert found(crashed) in (old, NEW)
        for _ in range(20):
            powerless = fs.copy()
            powerless.power_loss(rng)
            assert found(powerless) in (old, NEW)
            write_atomically(powerless, PATH, NEW)
            assert powerless.files() == {PATH: NEW}
        fs.power_loss_everything_unsynced_lost()
        assert found(fs) in (old, NEW)


def test_once_it_returned_no_power_cut_takes_it_back() -> None:
    rng = Random(2)
    for old in (OLD, None):
        fs = disk(old)
        write_atomically(fs, PATH, NEW)
        for _ in range(20):
            fork = fs.copy()
            fork.power_loss(rng)
            assert fork.files() == {PATH: NEW}
        fs.power_loss_everything_unsynced_lost()
        assert fs.files() == {PATH: NEW}


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.SYNC, Operation.RENAME])
def test_a_disk_that_fails_leaves_the_old(operation: Operation) -> None:
    fs = disk(OLD)
    fs.fail(operation, "/data", errno.EIO, partial_bytes=100)
    with pytest.raises(OSError):
        write_atomically(fs, PATH, NEW)
    assert fs.read(PATH) == OLD


def test_a_full_disk_leaves_the_old() -> None:
    fs = disk(OLD)
    fs.set_capacity("/data", len(OLD) + 100)
    with pytest.raises(OSError) as refused:
        write_atomically(fs, PATH, NEW)
    assert refused.value.errno == errno.ENOSPC
    assert fs.read(PATH) == OLD
