"""What the members of a classic group tell each other: what they want, and what they get.

How that is framed is in :mod:`dohle.protocol.consumer_framing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol import consumer_framing
from dohle.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

PROTOCOL_TYPE = consumer_framing.CONSUMER_PROTOCOL_TYPE
NO_GENERATION = -1

_ASSIGNMENT_VERSION = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it had of which generation."""

    topics: tuple[TopicName, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    #: Who it is across restarts, if it is a static member; not part of what is written.
    instance_id: str | None = None


def by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicName, tuple[int, ...]]:
    """Return the partitions of each topic."""
    found: dict[TopicName, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(some) for topic, some in found.items()}


def write_subscription(subscription: Subscription) -> bytes:
    """Return what a member tells when it joins."""
    message = ConsumerProtocolSubscription(
        topics=subscription.topics,
        owned_partitions=tuple(
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(subscription.owned).items()
        ),
        generation_id=subscription.generation,
    )
    return consumer_framing.write(message, ConsumerProtocolSubscription.VERSIONS.highest)


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Return what a member told."""
    message = consumer_framing.read_subscription(data)
    return Subscription(
        tuple(map(TopicName, message.topics)),
        _flat({each.topic: each.partitions for each in message.owned_partitions}),
        message.generation_id,
        instance_id,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return what a member is to get, in the version that every client reads."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=some)
            for topic, some in by_topic(partitions).items()
        )
    )
    return consumer_framing.write(message, _ASSIGNMENT_VERSION)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return what a member got; no bytes at all mean nothing."""
    if not data:
        return ()
    message = consumer_framing.read_assignment(data)
    return _flat({each.topic: each.partitions for each in message.assigned_partitions})


def _flat(topics: Mapping[TopicName, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, partition) for topic, some in topics.items() for partition in some
    )
