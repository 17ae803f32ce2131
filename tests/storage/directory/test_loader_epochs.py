"""Leader epochs that only recovery knows: they cost no sync at start, and no crash loses them."""

from __future__ import annotations

import random

from dohle.storage.config import LogConfig
from dohle.storage.leader_epochs import EpochEntry
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import BATCH_SIZE, NOW_MS, Node, data

EPOCHS = [EpochEntry(3, 0), EpochEntry(7, 2)]


def killed() -> Node:
    """A node that was killed before the epochs of its records were written to their file."""
    node = Node(LogConfig(segment_bytes=3 * BATCH_SIZE, retention_ms=-1))
    for epoch, start_offset in EPOCHS:
        node.log.leader_epochs.assign(epoch, start_offset, sync=False)
        for number in range(2):
            node.log.append_as_leader(data(1, timestamp=NOW_MS + number), epoch)
    node.manager.flush_due_now()
    node.kill()
    node.put("leader-epoch-checkpoint", b"")
    node.disk.settle()
    # All segments are taken for unflushed.
    if node.fs.exists("/data/recovery-point-offset-checkpoint"):
        node.fs.remove("/data/recovery-point-offset-checkpoint")
    return node


def test_checking_a_log_that_has_lost_nothing_syncs_none_of_its_files() -> None:
    node = killed()
    synced = []

    def observe(operation: Operation, path: str, _: bytes) -> None:
        if operation in (Operation.SYNC, Operation.SYNC_DIR) and path.startswith(node.folder):
            synced.append(path)

    node.disk.observer = observe
    node.start()
    assert node.log.leader_epochs.entries == EPOCHS
    assert synced == []


def test_the_epochs_that_recovery_has_found_survive_a_power_cut_after_the_next_flush() -> None:
    node = killed()
    node.start()
    node.log.flush()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert node.log.leader_epochs.entries == EPOCHS


def test_a_power_cut_before_the_next_flush_has_recovery_find_them_again() -> None:
    for seed in range(20):
        node = killed()
        node.start()
        node.disk.power_loss(random.Random(seed))
        node.start()
        found = [entry for entry in EPOCHS if entry.start_offset < node.log.log_end_offset]
        assert node.log.leader_epochs.entries == found


def test_they_are_on_the_disk_at_once_where_no_later_start_would_look_for_them() -> None:
    node = killed()
    node.start()
    log = node.restart(clean=True)
    assert log.leader_epochs.entries == EPOCHS
    # Without its index a segment below the recovery point is scanned once, and never again.
    node.kill()
    node.put("leader-epoch-checkpoint", b"")
    node.fs.remove(node.path("00000000000000000000.index"))
    node.disk.settle()
    node.start()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert node.log.leader_epochs.entries == EPOCHS
