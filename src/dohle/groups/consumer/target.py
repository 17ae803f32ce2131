"""The target assignment: which member gets what in a new group epoch."""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.groups.assignors.assignment import Assignment, MemberSubscription
from dohle.groups.assignors.registry import ASSIGNORS, UNIFORM
from dohle.groups.assignors.uniform import share_out
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from dohle.groups.consumer.reconcile import subscribed_topic_names
from dohle.groups.consumer.records import target_epoch_record, target_record
from dohle.groups.context import Topics, without_unknown
from dohle.protocol.record_framing import CoordinatorRecord


class Target(NamedTuple):
    """The result of an assignor."""

    #: One for each member whose part has changed, and the epoch.
    records: list[CoordinatorRecord]
    #: The part of the member that is new or has changed.
    own: Assignment


def assign(
    group: ConsumerGroup, updated: ConsumerMember, topics: Topics, *, epoch: int, assignor: str
) -> Target:
    """Compute the target for an epoch in which one member is new or has changed.

    A static member that came back under another member id takes its predecessor's place.
    """
    by_member = assign_changes(group, updated, topics) if assignor == UNIFORM else None
    if by_member is None:
        by_member = assign_anew(group, updated, topics, epoch=epoch, assignor=assignor)
    records = [
        target_record(group.group_id, member_id, target)
        for member_id, target in by_member.items()
        if group.target.get(member_id) != target
    ]
    records.append(target_epoch_record(group.group_id, epoch))
    return Target(records, by_member[updated.member_id])


def assign_changes(
    group: ConsumerGroup, updated: ConsumerMember, topics: Topics
) -> dict[str, Assignment] | None:
    """Compute only the changes, in the usual case: all subscribe alike, and one member is new.

    The result is the assignor's, which would have to look at every member. Without this, the time
    for thousands of members to join would grow with the square of their number.
    """
    names, member_id = updated.subscribed_topic_names, updated.member_id
    is_replaced = group.static_members.get(updated.instance_id or "", member_id) != member_id
    if is_replaced or updated.regex is not None or not group.members or not group.all_want(names):
        return None
    counts = {
        topic_id: topics.partition_count(name)
        for name in without_unknown(names, topics)
        if (topic_id := topics.id_of(name)) is not None
    }
    free = group.free_of_target(counts)
    if free is None:
        return None
    member_ids, sizes = group.member_ids, group.target_sizes
    if member_id not in group.members:
        member_ids, sizes = member_ids.copy(), {**sizes, member_id: 0}
        insort(member_ids, member_id)
    changed = share_out(member_ids, group.target, sizes, free, sum(counts.values()))
    changed.setdefault(member_id, group.target.get(member_id, NO_PARTITIONS))
    return changed


def assign_anew(
    group: ConsumerGroup, updated: ConsumerMember, topics: Topics, *, epoch: int, assignor: str
) -> dict[str, Assignment]:
    """Run an assignor on all members."""
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
        return ASSIGNORS[assignor](subscriptions, resolver.partition_counts)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"The assignor {assignor} could not make a target for epoch {epoch}: {error}",
        ) from error


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
        """Return the existing topics that a member subscribes to."""
        key = (member.subscribed_topic_names, member.regex)
        ids = self._by_subscription.get(key)
        if ids is None:
            names = subscribed_topic_names(self._group.resolved_regexes, member)
            found = (self._id_of(name) for name in without_unknown(names, self._topics))
            ids = frozenset(topic_id for topic_id in found if topic_id is not None)
            self._by_subscription[key] = ids
        return ids

    def _id_of(self, name: str) -> Uuid | None:
        if name not in self._ids:
            topic_id = self._ids[name] = self._topics.id_of(name)
            if topic_id is not None:
                self.partition_counts[topic_id] = self._topics.partition_count(name)
        return self._ids[name]
