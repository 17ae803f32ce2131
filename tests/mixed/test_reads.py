"""Consumers read from followers of one kind what the other kind leads (KIP-392; G30, G31)."""

from __future__ import annotations

import pytest

from dohle.client import Cluster as Client
from dohle.client import run
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dohle.records.batch import batches
from tests.interop.waiting import wait_until
from tests.mixed.administration import Operator, one_of_each
from tests.mixed.judge import judge
from tests.mixed.nodes import DEADLINE_S, MixedCluster, Node
from tests.mixed.writing import read, write

pytestmark = pytest.mark.timeout(300)


def fetch(cluster: MixedCluster, topic: TopicName, node: Node, rack: str = "") -> PartitionData:
    """Fetch the first partition from one broker, as a consumer in this rack does."""

    async def work() -> PartitionData:
        async with Client(cluster.bootstrap) as client:
            found = await client.topic(topic)
            asked = FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1
            )
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                rack_id=rack,
                topics=(FetchTopic(topic=topic, topic_id=found.topic_id, partitions=(asked,)),),
            )
            connection = await client.connection(BrokerId(node.id))
            answer = await connection.request(request, FetchResponse)
            return answer.responses[0].partitions[0]

    return run(work())


def await_sent_on(cluster: MixedCluster, topic: TopicName, leader: Node, follower: Node) -> None:
    """Wait until the leader sends a consumer to the follower that is in its rack."""

    def is_sent_on() -> bool:
        data = fetch(cluster, topic, leader, f"rack-{follower.id}")
        return data.preferred_read_replica == follower.id

    wait_until(is_sent_on, DEADLINE_S)


def await_all_at(cluster: MixedCluster, topic: TopicName, follower: Node, count: int) -> None:
    """Wait until a follower knows that so many records are committed."""
    wait_until(
        lambda: fetch(cluster, topic, follower).high_watermark == count,
        DEADLINE_S,
    )


def test_a_leader_of_either_kind_sends_consumers_to_a_follower_of_the_other(
    cluster: MixedCluster, operator: Operator
) -> None:
    kafka, dohle = one_of_each(cluster)
    topic = operator.create("reads", 1)
    written: list[bytes] = []
    for leader, follower in ((kafka, dohle), (dohle, kafka)):
        operator.let_lead(topic, leader)
        written += [b"%d of %d" % (number, leader.id) for number in range(50)]
        write(cluster.bootstrap, topic, written[-50:], acks=-1)
        await_sent_on(cluster, topic, leader, follower)
        await_all_at(cluster, topic, follower, len(written))
        found = fetch(cluster, topic, follower).records
        assert found is not None
        values = [each.value for batch in batches(found) for each in batch]
        assert values == written
        assert read(cluster.bootstrap, topic, f"rack-{follower.id}") == written
    judge(cluster, operator)
