"""What dohle answers on sockets it answers in the simulator, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.core.seams import SystemClock
from dohle.server.node import Node
from dohle.testing.simulation.machine import WALL_MS, SimulatedHost
from dohle.testing.simulation.world import World
from tests.oracle import transcripts
from tests.oracle.areas import CONFIG, all_areas
from tests.oracle.scenario import Scenario, Step, steps_of
from tests.server.wire import node_config

_SCENARIOS = [
    pytest.param(area, name, scenario, id=f"{area}/{name}")
    for area, scenarios in all_areas().items()
    for name, scenario in scenarios.items()
]
#: Of virtual time.
_WITHIN_S = 600


def simulated_steps(name: str, scenario: Scenario) -> list[Step]:
    """Run a scenario against a simulated node, and return its transcript."""
    world, found = World(1), list[Step]()

    async def serve_and_ask(host: SimulatedHost) -> None:
        node = Node(node_config(Path("/disk"), CONFIG), host=host)
        await node.start()
        found.extend(await steps_of(node.bootstrap, name, scenario, "replay"))
        await node.stop()

    machine = world.machine("node")
    # Transcripts say of a time whether it is now.
    machine.clock.offset_ms = SystemClock().now_ms() - WALL_MS
    machine.start(serve_and_ask)
    world.run_until(lambda: not machine.is_running, _WITHIN_S)
    assert not world.errors
    return found


@pytest.mark.parametrize(("area", "name", "scenario"), _SCENARIOS)
def test_a_simulated_node_answers_as_kafka_does(area: str, name: str, scenario: Scenario) -> None:
    where = f"{area}/{name}"
    ours = simulated_steps(name, scenario)
    found = transcripts.differences(where, transcripts.read(area).get(name, []), ours)
    new, gone = transcripts.Accepted.read().of(where).judge(found)
    assert not new, "\n" + "\n".join(map(str, new))
    assert not gone, f"listed in DIFFERENCES.md, but there is no such difference: {gone}"
