"""What goes wrong with one machine's disk and clock, whatever else there is in its world."""

from __future__ import annotations

import errno
from random import Random

from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedFileSystem
from dohle.testing.simulation.machine import DiskSettings, Machine
from dohle.testing.simulation.network import NetworkSettings

_MS_NS = 1_000_000
_HOUR_MS = 3_600_000


def die_in_a_change(rng: Random, files: SimulatedFileSystem) -> None:
    """Let the process die within one of its next changes of the disk."""
    if rng.random() < 0.5:
        files.cut_after_operations(rng.randrange(40))
    else:
        files.cut_after_bytes(rng.randrange(4_000))


def fill_disk(rng: Random, files: SimulatedFileSystem) -> None:
    """Leave little room on the disk, or none."""
    used = sum(map(len, files.files().values()))
    files.set_capacity("/", used + rng.randrange(20_000))


def fail_disk(rng: Random, files: SimulatedFileSystem) -> None:
    """Let some of the writes, syncs or reads fail."""
    operations = rng.choice(
        (
            (Operation.WRITE,),
            (Operation.SYNC,),
            (Operation.READ,),
            (Operation.CREATE, Operation.RENAME, Operation.REMOVE),
            (Operation.SYNC_DIR, Operation.SYNC, Operation.WRITE),
        )
    )
    files.fail(
        operations,
        "/",
        errno.EIO,
        partial_bytes=rng.choice((0, 10, 100)),
        skip=rng.randrange(20),
        times=rng.choice((1, 3, None)),
    )


def mend_disk(files: SimulatedFileSystem) -> None:
    """Let everything on the disk work again."""
    files.heal()
    files.set_capacity("/", None)


def set_clock_wrong(rng: Random, machine: Machine) -> None:
    """Let the wall clock jump, forward and back by up to a day.

    But no more than an hour behind the clients: brokers would refuse their records
    (message.timestamp.after.max.ms).
    """
    machine.clock.offset_ms = rng.randrange(-_HOUR_MS, 24 * _HOUR_MS)


def slow_disk(rng: Random) -> DiskSettings:
    """Draw how slow a disk is."""
    disk = DiskSettings()
    disk.work_mean_ns = rng.randrange(10, 1_000) * _MS_NS
    disk.operation_ns = rng.choice((20_000, 1_000_000, 10_000_000))
    return disk


def cut_short(rng: Random, network: NetworkSettings) -> None:
    """Let reads and writes of sockets take a part only, now and then."""
    network.short_share = rng.choice((0.05, 0.5))
