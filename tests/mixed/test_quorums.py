"""Three controllers of both kinds, apart from the brokers that they control (R100, R112; X4).

Brokers of each kind are registered, kept alive and told by controllers of the other (M1), and
controllers vote for, fetch from and give way to those of the other (M2), whose batches they take
as they are (M7). Rules M are those of replication.md, not mutants.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.client import Admin, QuorumDescription
from tests.interop.waiting import wait_until
from tests.jvm.jvm import Jvm
from tests.mixed.administration import Operator
from tests.mixed.judge import judge
from tests.mixed.load import Traffic, traffic
from tests.mixed.nodes import DEADLINE_S, TWO_BROKERS, Kind, MixedCluster

pytestmark = pytest.mark.timeout(300)

_K, _D = Kind.KAFKA, Kind.DOHLE
_QUORUMS = {
    "two-and-one": {101: _K, 102: _K, 103: _D},
    "one-and-two": {101: _K, 102: _D, 103: _D},
}


@pytest.fixture(params=list(_QUORUMS))
def cluster(
    request: pytest.FixtureRequest, classpath: str, jvm: Jvm, tmp_path: Path
) -> Iterator[MixedCluster]:
    """Controllers that know each other from their configuration, and a broker of each kind."""
    made = MixedCluster(
        *(jvm, classpath, tmp_path),
        brokers={1: _K, 2: _D},
        controllers=_QUORUMS[request.param],
        config=TWO_BROKERS,
    )
    with made as running:
        yield running


def test_a_quorum_apart_outlives_its_active_controller_with_static_and_with_dynamic_voters(
    cluster: MixedCluster,
) -> None:
    """The same quorum is of both: its voters go from the files into the log while it works."""
    operator = Operator(cluster)
    with traffic(cluster, operator) as flowing:
        outlive_active_controller(cluster, operator, flowing)
        assert level_of_quorum(operator) == 0
        put_voters_into_log(cluster, operator)
        for _ in range(2):
            outlive_active_controller(cluster, operator, flowing)
        assert {each.node_id for each in operator.quorum().voters} == {101, 102, 103}
    judge(cluster, operator)


def outlive_active_controller(cluster: MixedCluster, operator: Operator, flowing: Traffic) -> None:
    """Kill who is active: the two that are left go on, also without each other's kind."""
    killed = operator.active_controller()
    killed.kill()
    flowing.flow()
    assert operator.active_controller() is not killed
    operator.create("by-two", 1)
    killed.start()
    wait_until(lambda: has_caught_up(operator.quorum(), killed.id), DEADLINE_S)


def has_caught_up(quorum: QuorumDescription, node_id: int) -> bool:
    """Tell whether a voter has all that was committed when it was asked for."""
    (voter,) = [each for each in quorum.voters if each.node_id == node_id]
    return voter.log_end_offset >= quorum.high_watermark


def level_of_quorum(operator: Operator) -> int:
    async def ask(admin: Admin) -> int:
        finalized = (await admin.describe_features()).finalized
        return finalized.get("kraft.version", (0, 0))[1]

    return operator.ask(ask)


def put_voters_into_log(cluster: MixedCluster, operator: Operator) -> None:
    """Upgrade the quorum as docs/migrate.md says, as soon as that is allowed.

    The leader must have heard of the directories of all voters (R112), which they tell it in the
    first seconds of its office.
    """
    command = ["-b", cluster.bootstrap, "cluster", "features", "--upgrade", "kraft.version=1"]
    wait_until(lambda: main(command) == 0, DEADLINE_S)
    wait_until(lambda: level_of_quorum(operator) == 1, DEADLINE_S)
