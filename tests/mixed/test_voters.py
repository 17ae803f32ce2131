"""A quorum whose controllers are replaced while it works, by those of the other kind (KIP-853).

M2 and M5 of replication.md: what controllers ask of each other, and voters told apart by directory.

Kafka's nodes end themselves when they are answered what cannot be (raft.md 14).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jvm.jvm import Jvm
from tests.mixed.administration import Operator
from tests.mixed.judge import judge
from tests.mixed.load import traffic
from tests.mixed.nodes import TWO_BROKERS, Kind, MixedCluster
from tests.mixed.voting import Membership

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def cluster(classpath: str, jvm: Jvm, tmp_path: Path) -> Iterator[MixedCluster]:
    """One controller of Kafka, and a broker of each kind."""
    made = MixedCluster(
        jvm,
        classpath,
        tmp_path,
        brokers={1: Kind.KAFKA, 2: Kind.DOHLE},
        controllers={101: Kind.KAFKA},
        is_dynamic=True,
        later={
            102: Kind.KAFKA,
            103: Kind.DOHLE,
            104: Kind.DOHLE,
            105: Kind.KAFKA,
            106: Kind.KAFKA,
        },
        config=TWO_BROKERS,
    )
    with made as running:
        yield running


def test_controllers_are_replaced_one_by_one_by_the_other_kind_and_back(
    cluster: MixedCluster, jvm: Jvm
) -> None:
    """H23, R105-R107: also the one that leads is removed; whoever is left goes on.

    On the way the quorum is of two and one, and of one and two; newcomers begin with a snapshot.
    """
    operator, membership = Operator(cluster), Membership(cluster, jvm)
    membership.add(102)
    operator.create("many", 40)
    with traffic(cluster, operator) as flowing:
        for node_id in (103, 104, 105, 106):
            membership.add(node_id)
            assert len(membership.voters()) == 3
            leaves = cluster.controllers[0]
            membership.remove(leaves)
            # Both of those who are left are needed.
            operator.create("committed", 1)
            flowing.flow()
    assert membership.voters() == [105, 106]
    judge(cluster, operator)
