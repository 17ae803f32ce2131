"""A clean stop of so many logs that their disk is synced as a whole."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from dohle.core.ids import TopicName, TopicPartition
from dohle.storage.directory.pending_flush import SYNCED_SINGLY_MAX
from dohle.storage.files import OsFileSystem
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.whole_disk import open_whole_disk
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from tests.storage.logs import Node, append, data, log_records, offsets

MANY = SYNCED_SINGLY_MAX + 1
PARTITIONS = [TopicPartition(TopicName("t"), number) for number in range(MANY)]
MARK = "/data/.kafka_cleanshutdown"
SYNCS = (Operation.SYNC, Operation.SYNC_DIR)
FLUSHED, LATER = EpochEntry(1, 0), EpochEntry(2, 1)


def written(node: Node) -> None:
    """Write to many logs: a flushed record each, and behind it one that is not, of a new epoch."""
    for partition in PARTITIONS:
        log = node.create(partition)
        log.append_as_leader(data(), FLUSHED.epoch)
        log.flush()
        log.leader_epochs.assign(*LATER, sync=False)
        log.append_as_leader(data(), LATER.epoch)
    # Recovery will not look at what was flushed: its epoch is known from the file alone.
    (directory,) = node.manager.directories
    directory.checkpoints.write_all()


def synced(node: Node) -> list[str]:
    return [path for operation, path in node.disk.trace if operation in SYNCS]


def test_their_disk_is_synced_instead_of_each_file() -> None:
    node = Node()
    written(node)
    node.disk.trace.clear()
    node.stop()
    assert len(synced(node)) < 20
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    (directory,) = node.manager.directories
    assert directory.had_clean_shutdown
    for partition in PARTITIONS:
        log = node.create(partition)
        assert offsets(log_records(log)) == [0, 1]
        assert log.leader_epochs.entries == [FLUSHED, LATER]
        assert node.fs.exists(f"{log.directory}/{2:020d}.snapshot")


class NoWholeDisk(SimulatedFileSystem):
    """A disk that can only be synced file by file."""

    def whole_disk(self, path: str) -> None:
        """Be honest about it."""


def test_each_file_is_synced_where_the_disk_cannot_be() -> None:
    node = Node(fs=(disk := NoWholeDisk()))
    node.disk = disk
    written(node)
    disk.trace.clear()
    node.stop()
    found = set(synced(node))
    assert all(f"/data/t-{number}/{0:020d}.log" in found for number in range(MANY))
    disk.power_loss_everything_unsynced_lost()
    node.start()
    assert all(offsets(log_records(node.create(each))) == [0, 1] for each in PARTITIONS)


@pytest.mark.parametrize("times", [0, 1])
def test_a_disk_that_fails_at_it_is_not_marked_as_stopped_cleanly(times: int) -> None:
    """At the first sync, or at that of the names."""
    node = Node()
    written(node)
    node.disk.fail(Operation.SYNC, lambda path: path == "/data", errno.EIO, skip=times)
    node.stop()
    assert not node.fs.exists(MARK)
    node.disk.heal()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    for partition in PARTITIONS:
        log = node.create(partition)
        assert offsets(log_records(log))[:1] == [0]
        assert log.leader_epochs.entries[0] == FLUSHED


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_at_any_point_of_it_takes_nothing_that_was_flushed(seed: int) -> None:
    rng = random.Random(seed)
    whole = Node()
    written(whole)
    begun = whole.disk.operations
    whole.stop()
    operations = whole.disk.operations - begun
    node = Node()
    written(node)
    node.disk.cut_after_operations(rng.randrange(operations))
    with pytest.raises(SimulatedCrash):
        node.stop()
    node.disk.power_loss(rng)
    node.start()
    for partition in PARTITIONS:
        log = node.create(partition)
        assert offsets(log_records(log)) in ([0], [0, 1])
        assert log.leader_epochs.entries[0] == FLUSHED


def test_a_disk_of_this_machine_is_synced_as_a_whole_or_file_by_file(tmp_path: Path) -> None:
    node = Node(fs=OsFileSystem(), paths=[str(tmp_path)])
    for partition in PARTITIONS:
        append(node.create(partition), data())
    node.stop()
    node.start()
    (directory,) = node.manager.directories
    assert directory.had_clean_shutdown
    assert all(offsets(log_records(node.create(each))) == [0] for each in PARTITIONS)
    node.stop()


def test_a_file_system_that_does_not_tell_of_errors_is_not_synced_as_a_whole() -> None:
    assert open_whole_disk("/proc") is None
