"""The target assignment: who is to get what in a new group epoch."""

from __future__ import annotations

from typing import NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.groups.assignment import Assignment, MemberSubscription
from dohle.groups.assignors import ASSIGNORS
from dohle.groups.consumer_group import ConsumerGroup
from dohle.groups.consumer_member import NO_PARTITIONS, ConsumerMember
from dohle.groups.consumer_reconcile import subscribed_topic_names
from dohle.groups.consumer_records import target_epoch_record, target_record
from dohle.groups.context import Topics
from dohle.protocol.record_framing import CoordinatorRecord


class Target(NamedTuple):
    """What an assignor decided."""

    #: One for each member whose part differs from what it was, and the epoch.
    records: list[CoordinatorRecord]
    by_member: dict[str, Assignment]


def assign(
    group: ConsumerGroup, updated: ConsumerMember, topics: Topics, *, epoch: int, assignor: str
) -> Target:
    """Assign all topics for an epoch in which one member is new or has changed.

    A static member that came back under another member id takes its predecessor's place.
    """
    members = {**group.members, updated.member_id: updated}
    predecessor_id = group.static_members.get(updated.instance_id or "")
    if predecessor_id is not None and predecessor_id != updated.member_id:
        members.pop(predecessor_id, None)
    else:
        predecessor_id = updated.member_id
    resolver = _Resolver(group, topics)
    subscriptions = {
        member_id: MemberSubscription(
            subscribed_topic_ids=resolver.topic_ids(member),
            assigned=group.target.get(
                predecessor_id if member is updated else member_id, NO_PARTITIONS
            ),
            instance_id=member.instance_id,
        )
        for member_id, member in members.items()
    }
    try:
        by_member = ASSIGNORS[assignor](subscriptions, resolver.partition_counts)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The assignor {assignor} could not make a target for epoch {epoch}: {error}",
        ) from error
    records = [
        target_record(group.group_id, member_id, by_member.get(member_id, NO_PARTITIONS))
        for member_id in subscriptions
        if group.target.get(member_id) != by_member.get(member_id, NO_PARTITIONS)
    ]
    records.append(target_epoch_record(group.group_id, epoch))
    return Target(records, by_member)


class _Resolver:
    """Looks up every name once, and every distinct subscription once."""

    __slots__ = ("_by_subscription", "_group", "_ids", "_topics", "partition_counts")

    def __init__(self, group: ConsumerGroup, topics: Topics) -> None:
        self._group = group
        self._topics = topics
        self._ids: dict[str, Uuid | None] = {}
        self._by_subscription: dict[tuple[frozenset[str], str | None], frozenset[Uuid]] = {}
        self.partition_counts: dict[Uuid, int] = {}

    def topic_ids(self, member: ConsumerMember) -> frozenset[Uuid]:
        """Return the existing topics that a member wants."""
        key = (member.subscribed_topic_names, member.regex)
        ids = self._by_subscription.get(key)
        if ids is None:
            names = subscribed_topic_names(self._group.resolved_regexes, member)
            found = (self._id_of(name) for name in names)
            ids = frozenset(topic_id for topic_id in found if topic_id is not None)
            self._by_subscription[key] = ids
        return ids

    def _id_of(self, name: str) -> Uuid | None:
        if name not in self._ids:
            topic_id = self._ids[name] = self._topics.id_of(name)
            if topic_id is not None:
                self.partition_counts[topic_id] = self._topics.partition_count(name)
        return self._ids[name]
