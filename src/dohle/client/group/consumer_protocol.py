"""What the members of a classic group send each other: subscriptions and assignments.

Their framing is in :mod:`dohle.protocol.consumer_framing`.
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
    """A member's topics, and what it owned in which generation."""

    topics: tuple[TopicName, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    #: The instance id of a static member; not part of the encoded form.
    instance_id: str | None = None
    #: What the assignor of its client has added.
    user_data: bytes = b""


def by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicName, tuple[int, ...]]:
    """Return the partitions of each topic."""
    found: dict[TopicName, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(some) for topic, some in found.items()}


def write_subscription(subscription: Subscription, user_data: bytes | None = None) -> bytes:
    """Encode the subscription that a member sends when it joins."""
    message = ConsumerProtocolSubscription(
        topics=subscription.topics,
        user_data=user_data,
        owned_partitions=tuple(
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(subscription.owned).items()
        ),
        generation_id=subscription.generation,
    )
    return consumer_framing.write(message, ConsumerProtocolSubscription.VERSIONS.highest)


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Decode a member's subscription."""
    message = consumer_framing.read_subscription(data)
    return Subscription(
        tuple(map(TopicName, message.topics)),
        _flat({each.topic: each.partitions for each in message.owned_partitions}),
        message.generation_id,
        instance_id,
        bytes(message.user_data or b""),
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an assignment in the version that every client can read."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=some)
            for topic, some in by_topic(partitions).items()
        )
    )
    return consumer_framing.write(message, _ASSIGNMENT_VERSION)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment; no bytes at all mean an empty one."""
    if not data:
        return ()
    message = consumer_framing.read_assignment(data)
    return _flat({each.topic: each.partitions for each in message.assigned_partitions})


def _flat(topics: Mapping[TopicName, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, partition) for topic, some in topics.items() for partition in some
    )
