"""Throttles for reassignments: set before, and removed after, as Kafka's tool does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dohle.client import AlterOp, ConfigChange, ConfigResource, ResourceType
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition

if TYPE_CHECKING:
    from dohle.client import Admin, PartitionReassignment

_LEADERS, _FOLLOWERS = "leader.replication.throttled", "follower.replication.throttled"


async def set_throttles(
    admin: Admin,
    current: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, PartitionReassignment],
    bytes_per_second: int,
) -> None:
    """Throttle the copying of what is planned and of what goes on: where from, and where to."""
    sources: dict[TopicPartition, set[int]] = {key: set(current[key]) for key in planned}
    targets: dict[TopicPartition, set[int]] = {
        key: set(planned[key]) - sources[key] for key in planned
    }
    for key, one in ongoing.items():
        # What an earlier reassignment adds is no source.
        sources[key] = {broker for broker in one.replicas if broker not in one.adding}
        targets[key] = {*planned.get(key, ()), *one.adding} - sources[key]
    changes: dict[ConfigResource, list[ConfigChange]] = {}
    for topic in sorted({key.topic for key in sources}):
        changes[ConfigResource(ResourceType.TOPIC, topic)] = [
            ConfigChange(f"{_LEADERS}.replicas", AlterOp.SET, _replicas(topic, sources)),
            ConfigChange(f"{_FOLLOWERS}.replicas", AlterOp.SET, _replicas(topic, targets)),
        ]
    brokers: set[int] = set().union(*sources.values(), *targets.values())
    # One that is down copies nothing, and cannot be told.
    up = {each.node_id for each in (await admin.describe_cluster()).brokers}
    for broker in sorted(brokers & up):
        changes[ConfigResource(ResourceType.BROKER, str(broker))] = [
            ConfigChange(f"{role}.rate", AlterOp.SET, str(bytes_per_second))
            for role in (_LEADERS, _FOLLOWERS)
        ]
    (await admin.incremental_alter_configs(changes)).ok()


async def remove_throttles(admin: Admin, topics: Iterable[TopicName]) -> None:
    """Remove the throttles of topics, as far as they are still there, and those of all brokers."""
    described = await admin.describe_cluster()
    changes = {
        ConfigResource(ResourceType.TOPIC, topic): [
            ConfigChange(f"{role}.replicas", AlterOp.DELETE) for role in (_LEADERS, _FOLLOWERS)
        ]
        for topic in sorted(set(topics))
    }
    for broker in described.brokers:
        changes[ConfigResource(ResourceType.BROKER, str(broker.node_id))] = [
            ConfigChange(f"{role}.rate", AlterOp.DELETE) for role in (_LEADERS, _FOLLOWERS)
        ]
    results = await admin.incremental_alter_configs(changes)
    for error in results.errors.values():
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error


def _replicas(topic: TopicName, brokers: Mapping[TopicPartition, set[int]]) -> str:
    return ",".join(
        f"{key.partition}:{broker}"
        for key in sorted(brokers)
        if key.topic == topic
        for broker in sorted(brokers[key])
    )
