"""Topics with a replica on every node, whose leaders are chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.cluster.nodes import NODES, Cluster
from bench.coordinators.client import answer_of, expect
from bench.raw_client import call, connect, frame
from bench.versus.topics import Place, await_served, create, describe
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from dohle.protocol.messages.metadata import MetadataResponseTopic

_QUORUM_VERSION = 2
_TIMEOUT_S = 120.0
_RETRY_S = 0.02


def replicas(leader: int) -> tuple[BrokerId, ...]:
    """Return the replicas of a partition with this leader: all nodes, in turn."""
    first = NODES.index(leader)
    return tuple(BrokerId(number) for number in (*NODES[first:], *NODES[:first]))


def create_topic(cluster: Cluster, name: str, leaders: Sequence[int]) -> Place:
    """Create a topic with a partition for each leader, and wait until all replicas are in sync.

    The place is that of the first leader.
    """
    topic, address = TopicName(name), cluster.nodes[leaders[0]].address
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas(leader))
        for index, leader in enumerate(leaders)
    )
    create(
        address,
        CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
        ),
    )
    await_in_sync(cluster, topic, len(leaders))
    for leader in dict.fromkeys(leaders):
        own = [index for index, one in enumerate(leaders) if one == leader]
        await_served(cluster.nodes[leader].address, topic, own)
    return Place(address, topic, describe(address, topic).topic_id)


def await_in_sync(cluster: Cluster, topic: TopicName, partitions: int) -> None:
    """Wait until every node knows that every replica of a topic is in sync."""
    for node in cluster.nodes.values():
        await_that(
            lambda node=node: _are_in_sync(describe(node.address, topic), partitions),  # type: ignore[misc]
            f"{topic} is not in sync",
        )


def _are_in_sync(found: MetadataResponseTopic, partitions: int) -> bool:
    isrs = [len(one.isr_nodes) for one in found.partitions if one.leader_id >= 0]
    return isrs == [len(NODES)] * partitions


def await_that(is_so: Callable[[], bool], problem: str) -> None:
    """Look again and again."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        time.sleep(_RETRY_S)


def active_controller(cluster: Cluster) -> int:
    """Return which node leads the quorum."""
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(
        topic_name=TopicName("__cluster_metadata"), partitions=(partition,)
    )
    request = frame(DescribeQuorumRequest(topics=(topic,)), _QUORUM_VERSION)
    with connect(cluster.nodes[NODES[0]].address) as sock:
        answer = answer_of(DescribeQuorumResponse, _QUORUM_VERSION, call(sock, request))
    found = answer.topics[0].partitions[0]
    expect("DescribeQuorum", (answer.error_code, found.error_code))
    return found.leader_id
