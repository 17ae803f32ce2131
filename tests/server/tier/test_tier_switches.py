"""A topic whose remote tier is switched off and on again, with all that is remote deleted (T15)."""

from __future__ import annotations

import errno

import pytest

from dohle.testing.simulation.disk_faults import Operation
from tests.server.tier.tiered_world import COUNT, KEY, TieredWorld

_STAYS_HERE = "3600000"


def _copied() -> TieredWorld:
    """A topic that is remote as a whole, and still all on the disk."""
    tiered = TieredWorld(1, local_retention_ms=_STAYS_HERE, retention_ms=_STAYS_HERE)
    tiered.produce()
    tiered.world.run_until(lambda: tiered.log.highest_remote_offset > COUNT // 2, 60)
    return tiered


def _switch_off(tiered: TieredWorld) -> None:
    tiered.alter(remote_storage_enable="false", remote_log_delete_on_disable="true")


def test_what_was_deleted_in_the_store_is_copied_again_before_it_leaves_the_disk() -> None:
    """T5, T27.2: that it was remote once does not count."""
    tiered = _copied()
    try:
        _switch_off(tiered)
        tiered.world.run_until(lambda: not tiered.objects(), 60)
        tiered.alter(remote_storage_enable="true", local_retention_ms="1")
        tiered.wait_until_only_remote()
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


def test_a_deletion_that_is_still_under_way_takes_nothing_of_what_is_copied_anew() -> None:
    """T15, T27.2: the store fails while the topic is switched off, and on again."""
    tiered = _copied()
    try:
        fault = tiered.machine.files.fail([Operation.REMOVE], "/store", errno.EIO)
        _switch_off(tiered)
        tiered.world.run_for(1)
        tiered.alter(remote_storage_enable="true", local_retention_ms="1")
        tiered.world.run_for(2)
        tiered.machine.files.heal(fault)
        tiered.wait_until_only_remote()
        tiered.world.run_for(5)
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


def test_a_node_that_dies_during_the_deletion_loses_nothing_of_what_is_on_its_disk() -> None:
    """T5, T27.2: some is remote still, some no more; then the topic is switched on again."""
    tiered = _copied()
    try:
        tiered.machine.files.fail([Operation.REMOVE], "/store", errno.EIO, skip=6)
        _switch_off(tiered)
        tiered.world.run_for(1)
        tiered.kill()
        tiered.machine.files.heal()
        tiered.alter(remote_storage_enable="true", local_retention_ms="1")
        tiered.wait_until_only_remote()
        assert tiered.read() == tiered.acknowledged
    finally:
        tiered.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_that_is_under_way_leaves_nothing_in_the_store(seed: int) -> None:
    """T15, T27.6: the thread that copies goes on for a while."""
    tiered = TieredWorld(
        seed, remote_log_copy_disable="true", local_retention_ms="-2", retention_ms=_STAYS_HERE
    )
    try:
        tier, disk = tiered.node.broker.tier, tiered.machine.disk
        assert tier is not None
        tiered.produce()
        bases = tiered.log.segments.base_offsets
        tiered.world.run_until(lambda: tiered.log.recovery_point >= bases[-2], 300)
        tiered.alter(remote_log_copy_disable="false")
        work_ns, disk.work_mean_ns = disk.work_mean_ns, 20_000_000_000
        copies = tier.counts.of(KEY.topic)
        tiered.world.run_until(lambda: copies.remotecopyrequests > 0, 600)
        disk.work_mean_ns = work_ns
        _switch_off(tiered)
        tiered.world.run_for(100)
        assert tiered.objects() == set()
    finally:
        tiered.close()
