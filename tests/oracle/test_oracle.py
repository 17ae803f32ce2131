"""What Apache Kafka answered to the scenarios, dohle answers too.

The transcripts come from Kafka (``make oracle-record``). A difference is a defect, or it is listed
in ``DIFFERENCES.md`` with its reason; what is listed there must still differ.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.protocol.apis import APIS
from dohle.server.registry import all_handlers
from tests.oracle import transcripts
from tests.oracle.areas import CONFIG, all_areas, cluster_areas
from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Scenario, Step, steps_of
from tests.server.wire import running_node

_AREAS = all_areas()
_SCENARIOS = [
    pytest.param(area, name, scenario, id=f"{area}/{name}")
    for area, scenarios in _AREAS.items()
    for name, scenario in scenarios.items()
]


async def _replay(path: Path, name: str, scenario: Scenario) -> list[Step]:
    async with running_node(path, CONFIG) as node:
        return await steps_of(node.bootstrap, name, scenario, "replay")


@pytest.mark.parametrize(("area", "name", "scenario"), _SCENARIOS)
def test_dohle_answers_as_kafka_does(
    area: str, name: str, scenario: Scenario, tmp_path: Path
) -> None:
    where = f"{area}/{name}"
    ours = asyncio.run(_replay(tmp_path, name, scenario))
    found = transcripts.differences(where, transcripts.read(area).get(name, []), ours)
    new, gone = transcripts.Accepted.read().of(where).judge(found)
    assert not new, "\n" + "\n".join(map(str, new))
    assert not gone, f"listed in DIFFERENCES.md, but there is no such difference: {gone}"


def test_every_transcript_and_every_listed_difference_has_its_scenario() -> None:
    areas = {**_AREAS, **cluster_areas()}
    known = {f"{area}/{name}" for area, scenarios in areas.items() for name in scenarios}
    recorded = {
        f"{path.stem}/{name}"
        for path in transcripts.FOLDER.glob("*.json")
        for name in transcripts.read(path.stem)
    }
    assert recorded == known
    listed = {"/".join(each.split("/")[:2]) for each in transcripts.Accepted.read().patterns}
    assert listed <= known


def test_every_api_is_asked_at_every_version() -> None:
    asked = {
        step.name.split(":")[0].split(" (")[0]
        for path in transcripts.FOLDER.glob("*.json")
        for steps in transcripts.read(path.stem).values()
        for step in steps
    }
    served = {
        f"{APIS[key].name} v{version}"
        for key in all_handlers()
        for version in versions_of(APIS[key].name)
    }
    assert served <= asked, sorted(served - asked)
