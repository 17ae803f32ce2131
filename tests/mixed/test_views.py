"""Whichever broker is asked, of whichever kind: the answer is about one and the same cluster.

M1 of replication.md: what brokers of either kind send on to a controller of the other.
"""

from __future__ import annotations

import pytest

from dohle.client import Admin, AlterOp, ConfigChange, ConfigResource, NewTopic, ResourceType, run
from dohle.client import Cluster as Client
from dohle.core.ids import TopicName
from tests.interop.waiting import wait_until
from tests.mixed.administration import Operator
from tests.mixed.judge import judge
from tests.mixed.nodes import CLUSTER_ID, DEADLINE_S, MixedCluster, Node

pytestmark = pytest.mark.timeout(300)


async def seen_by(node: Node) -> dict[str, object]:
    async with Client(node.client) as client:
        admin = Admin(client)
        cluster = await admin.describe_cluster()
        quorum = await admin.describe_quorum()
        features = await admin.describe_features()
        return {
            "cluster": cluster.cluster_id,
            "brokers": {(each.node_id, each.port, each.rack) for each in cluster.brokers},
            "leader": (quorum.leader_id, quorum.leader_epoch),
            "voters": {each.node_id for each in quorum.voters},
            "observers": {each.node_id for each in quorum.observers},
            # What a kind does not serve it does not name: share groups.
            "features": {
                name: level
                for name, level in features.finalized.items()
                if name not in ("share.version", "streams.version")
            },
        }


def test_all_brokers_tell_of_the_same_cluster(cluster: MixedCluster, operator: Operator) -> None:
    """A50-A52, R58: brokers, quorum and features; Kafka's own levels of its release."""
    operator.active_controller()
    told = [run(seen_by(node)) for node in cluster.brokers]
    assert told == [told[0]] * len(told)
    brokers, controllers = (
        {each.id for each in some} for some in (cluster.brokers, cluster.controllers)
    )
    assert told[0]["cluster"] == CLUSTER_ID
    assert told[0]["voters"] == controllers
    assert told[0]["observers"] == brokers - controllers
    judge(cluster, operator)


async def change_through(node: Node, topic: TopicName) -> None:
    """Make a topic, configure it, extend it; all by way of one broker."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    async with Client(node.client) as client:
        admin = Admin(client)
        (await admin.create_topics([NewTopic(topic, 1, 3)])).ok()
        change = ConfigChange("retention.ms", AlterOp.SET, "12345678")
        (await admin.incremental_alter_configs({resource: [change]})).ok()
        (await admin.create_partitions({topic: 2})).ok()


async def retention_at(node: Node, topic: TopicName) -> tuple[int, str | None]:
    """Return what one broker knows of it: partitions, and retention."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    async with Client(node.client) as client:
        admin = Admin(client)
        found = (await admin.list_topics()).get(topic)
        if found is None:
            return 0, None
        configs = (await admin.describe_configs([resource], names=["retention.ms"])).ok()
        return len(found.partitions), configs[resource][0].value


def test_changes_through_any_broker_reach_all(cluster: MixedCluster, operator: Operator) -> None:
    """T8: in an Envelope from each kind to the controller, and from its log to each kind."""
    for node in cluster.brokers:
        topic = TopicName(f"through-{node.id}")
        run(change_through(node, topic))
        for other in cluster.brokers:
            wait_until(
                lambda other=other, topic=topic: (  # type: ignore[misc]
                    run(retention_at(other, topic)) == (2, "12345678")
                ),
                DEADLINE_S,
            )
    judge(cluster, operator)
