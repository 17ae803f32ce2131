"""A node that has no metadata log begins with a snapshot of the controller that leads.

M1 and M7 of replication.md: FetchSnapshot between both kinds, and bytes that are taken as they are.
"""

from __future__ import annotations

import shutil

import pytest

from tests.interop.waiting import wait_until
from tests.mixed.administration import Operator
from tests.mixed.judge import METADATA, judge
from tests.mixed.load import traffic
from tests.mixed.nodes import DEADLINE_S, MixedCluster, Node

pytestmark = pytest.mark.timeout(300)


def has_snapshot(node: Node) -> bool:
    """Tell whether it has one, other than that of its formatting."""
    snapshots = (node.directories[0] / METADATA).glob("*.checkpoint")
    return any(int(path.name.split("-")[0]) > 0 for path in snapshots)


def first_offset(node: Node) -> int:
    return int(min((node.directories[0] / METADATA).glob("*.log")).stem)


def test_a_broker_without_a_log_begins_with_a_snapshot_of_the_other_kind(
    cluster: MixedCluster, operator: Operator
) -> None:
    """R49-R57: it is fetched piece by piece, and read to the last record."""
    active = operator.active_controller()
    late = cluster.broker_of(active.kind.other)
    operator.create("many", 40)
    wait_until(lambda: has_snapshot(active), DEADLINE_S)
    with traffic(cluster, operator) as flowing:
        late.stop()
        shutil.rmtree(late.directories[0] / METADATA)
        flowing.flow()
        late.start()
        assert has_snapshot(late)
        assert first_offset(late) > 0
        operator.await_in_sync()
        flowing.flow()
    judge(cluster, operator)
