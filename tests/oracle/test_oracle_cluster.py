"""What three nodes of Apache Kafka answered, three nodes of dohle answer too: in the simulator.

Rules M of replication.md: what brokers ask of controllers (M1) and controllers of each other (M2),
with the right and with another cluster.id (M4) and directory.id (M5).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dohle.protocol.apis import APIS
from tests.oracle import transcripts
from tests.oracle.areas import CLUSTER, cluster_areas, has_static_voters, needs_own_cluster
from tests.oracle.bodies import handlers_of_controllers, versions_of
from tests.oracle.scenario import CONTROLLER, Scenario
from tests.oracle.simulated_cluster import SimulatedThree

_SCENARIOS = [
    pytest.param(area, name, scenario, id=f"{area}/{name}")
    for area, scenarios in cluster_areas().items()
    for name, scenario in scenarios.items()
]


@pytest.fixture(scope="module")
def shared() -> Iterator[SimulatedThree]:
    with SimulatedThree() as running:
        yield running


@pytest.fixture
def cluster(area: str, shared: SimulatedThree) -> Iterator[SimulatedThree]:
    if not needs_own_cluster(area):
        yield shared
        return
    with SimulatedThree(has_static_voters=has_static_voters(area)) as own:
        yield own


@pytest.mark.parametrize(("area", "name", "scenario"), _SCENARIOS)
def test_three_nodes_answer_as_those_of_kafka_do(
    area: str, name: str, scenario: Scenario, cluster: SimulatedThree
) -> None:
    where = f"{area}/{name}"
    ours = cluster.steps_of(name, scenario)
    found = transcripts.differences(where, transcripts.read(area).get(name, []), ours)
    new, gone = transcripts.Accepted.read().of(where).judge(found)
    assert not new, "\n" + "\n".join(map(str, new))
    assert not gone, f"listed in DIFFERENCES.md, but there is no such difference: {gone}"


def test_every_api_of_controllers_is_asked_at_every_version() -> None:
    """M1, M2: nothing that a node of another kind may send is left out."""
    asked = {
        step.name.split(f" at {CONTROLLER}")[0]
        for path in transcripts.FOLDER.glob(f"{CLUSTER}*.json")
        for steps in transcripts.read(path.stem).values()
        for step in steps
        if f" at {CONTROLLER}" in step.name
    }
    served = {
        f"{APIS[key].name} v{version}"
        for key in handlers_of_controllers()
        for version in versions_of(APIS[key].name)
    }
    assert served <= asked, sorted(served - asked)
