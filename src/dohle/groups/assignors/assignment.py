"""What a server-side assignor is given and what it gives back (KIP-848).

An assignor is a pure function of the members and the partition counts: the order in which they are
given does not matter, so every coordinator comes to the same assignment. Racks are not among what
is given: none of Kafka's assignors looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from dohle.core.ids import Uuid
from dohle.core.uuid import uuid_to_text

#: The partitions of one member. A topic of which it has none is not in it.
Assignment: TypeAlias = Mapping[Uuid, frozenset[int]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What an assignor knows of a member."""

    #: Topics that exist, whether it named them or a regular expression found them.
    subscribed_topic_ids: frozenset[Uuid]
    #: Its target assignment so far; of a static member that came back, its predecessor's.
    assigned: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
PartitionCounts: TypeAlias = Mapping[Uuid, int]
#: The result names every member. A ValueError tells of a subscription to an unknown topic.
Assignor: TypeAlias = Callable[[Members, PartitionCounts], dict[str, Assignment]]


def is_homogeneous(members: Members) -> bool:
    """Tell whether all members want the same topics."""
    return len({member.subscribed_topic_ids for member in members.values()}) <= 1


def partition_count(partition_counts: PartitionCounts, topic_id: Uuid) -> int:
    """Return how many partitions a topic has that somebody subscribed to."""
    count = partition_counts.get(topic_id)
    if count is None:
        raise ValueError(f"a member is subscribed to {uuid_to_text(topic_id)}, an unknown topic")
    return count
