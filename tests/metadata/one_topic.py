"""A cluster with one topic of one partition."""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import finish
from dohle.metadata.partition import PartitionImage
from dohle.metadata.topics import create_topics
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.metadata.cluster import Cluster, cluster

JAYS = TopicName("jays")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def with_topic(*replicas: int, brokers: int = 3) -> Cluster:
    made = cluster(brokers)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=ids(*replicas))
    topic = CreatableTopic(
        name=JAYS, num_partitions=-1, replication_factor=-1, assignments=(assignment,)
    )
    request = CreateTopicsRequest(topics=(topic,))
    made.commit(finish(create_topics(made.image, request, made.context)))
    return made


def partition(made: Cluster) -> PartitionImage:
    return made.topic("jays").partitions[0]
