"""What is left of faults once they are over."""

from __future__ import annotations

import pytest

from dohle.testing.simulation.faults import FaultPlan, Faults, Kind
from dohle.testing.simulation.machine import DiskSettings
from dohle.testing.simulation.network import NetworkSettings
from dohle.testing.simulation.world import World


@pytest.mark.parametrize("seed", range(5))
def test_the_clock_does_not_end_behind_a_time_it_has_shown(seed: int) -> None:
    world = World(seed)
    node = world.machine("node")
    plan = FaultPlan((Kind.CLOCK,), 6, NetworkSettings(), DiskSettings(), sync_each=False)
    faults = Faults(world, plan, node, [])
    faults.schedule(0.0, 6.0)
    shown = []
    for _ in range(600):
        world.run_for(0.01)
        shown.append(node.clock.now_ms())
    assert faults.struck == 6
    assert shown != sorted(shown)
    faults.heal()
    assert node.clock.now_ms() >= max(shown)
