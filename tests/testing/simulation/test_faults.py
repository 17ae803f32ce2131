"""What faults do to a machine."""

from __future__ import annotations

import pytest

from dohle.testing.simulation.faults import FaultPlan, Faults, Kind
from dohle.testing.simulation.machine import DiskSettings
from dohle.testing.simulation.network import NetworkSettings
from dohle.testing.simulation.world import World


@pytest.mark.parametrize("seed", range(5))
def test_the_wall_clock_jumps_forward_and_back_and_the_other_does_not(seed: int) -> None:
    world = World(seed)
    node = world.machine("node")
    plan = FaultPlan((Kind.CLOCK,), 6, NetworkSettings(), DiskSettings(), sync_each=False)
    faults = Faults(world, plan, node, [])
    faults.schedule(0.0, 6.0)
    shown, passed = [], []
    for _ in range(600):
        world.run_for(0.01)
        shown.append(node.clock.now_ms())
        passed.append(node.clock.monotonic_ms())
    assert faults.struck == 6
    assert shown != sorted(shown)
    assert max(shown) - min(shown) > 3_600_000
    assert passed == sorted(passed)
    assert passed[-1] - passed[0] < 10_000
