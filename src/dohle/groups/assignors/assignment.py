"""The input and output of a server-side assignor (KIP-848).

An assignor is a pure function of the members and the partition counts. The order of its input does
not matter, so every coordinator arrives at the same assignment. Racks are not part of the input:
none of Kafka's assignors uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from dohle.core.ids import Uuid
from dohle.core.uuid import uuid_to_text

#: The partitions of one member. Topics without a partition for it are left out.
Assignment: TypeAlias = Mapping[Uuid, frozenset[int]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What an assignor knows of a member."""

    #: Topics that exist, whether subscribed by name or matched by a regular expression.
    subscribed_topic_ids: frozenset[Uuid]
    #: Its current target assignment; for a static member that came back, its predecessor's.
    assigned: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
PartitionCounts: TypeAlias = Mapping[Uuid, int]
#: The result contains every member. Raises ValueError if a subscribed topic is unknown.
Assignor: TypeAlias = Callable[[Members, PartitionCounts], dict[str, Assignment]]


def is_homogeneous(members: Members) -> bool:
    """Tell whether all members subscribe to the same topics."""
    return len({member.subscribed_topic_ids for member in members.values()}) <= 1


def partition_count(partition_counts: PartitionCounts, topic_id: Uuid) -> int:
    """Return the number of partitions of a subscribed topic."""
    count = partition_counts.get(topic_id)
    if count is None:
        raise ValueError(f"a member is subscribed to {uuid_to_text(topic_id)}, an unknown topic")
    return count
