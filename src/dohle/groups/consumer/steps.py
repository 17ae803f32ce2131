"""What happens when a member sends a request, in either protocol.

1. The member is found, or created. A static member may take the place of its predecessor.
2. What it reports is written, if it is new; a new subscription, or changed topics, move the group
   to a new epoch.
3. For a new epoch a target assignment is computed.
4. The member moves a step towards its target.

The records are written in this order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.assignors.assignment import Assignment
from dohle.groups.consumer.deadlines import MemberTimers
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
)
from dohle.groups.consumer.metadata_hash import TopicHashes
from dohle.groups.consumer.reconcile import Step
from dohle.groups.consumer.records import (
    current_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    subscription_metadata_tombstone,
    target_record,
)
from dohle.groups.consumer.subscriptions import MaySee, RegexChange, RegexSubscriptions
from dohle.groups.consumer.target import assign
from dohle.groups.context import GroupContext
from dohle.protocol.record_framing import CoordinatorRecord


@dataclass(slots=True)
class Change:
    """A member that sent a request, and the records written because of it."""

    group: ConsumerGroup
    #: As the group knows it; without a subscription if it is new.
    member: ConsumerMember
    #: As it is now.
    updated: ConsumerMember
    records: list[CoordinatorRecord] = field(default_factory=list)
    #: The names that it subscribes to, if it has told them now.
    sorted_names: tuple[str, ...] | None = None
    #: Tells whether the member may see a topic; None: it may see all.
    may_see: MaySee | None = None
    names_changed: bool = False
    regex_change: RegexChange = RegexChange.NONE

    @property
    def subscription_changed(self) -> bool:
        """Tell whether its subscription differs, or may differ."""
        return self.names_changed or self.regex_change is not RegexChange.NONE


class MemberSteps:
    """The steps, over the groups of a shard."""

    __slots__ = ("_context", "_timers", "hashes", "regexes", "topics_version")

    def __init__(self, context: GroupContext, timers: MemberTimers) -> None:
        self._context = context
        self._timers = timers
        self.hashes = TopicHashes(context.topics)
        self.regexes = RegexSubscriptions(context, self.hashes)
        #: Counts the changes of topics; a group that has not seen the last one checks its hash.
        self.topics_version = 0

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        """Refuse a member beyond the group's maximum size."""
        size_max = self._context.settings().group_consumer_max_size
        if len(group.members) >= size_max and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has its maximum of {size_max} members.",
            )

    def write_member(self, change: Change) -> None:
        """Write what the member reported, if it is new."""
        group, member, updated = change.group, change.member, change.updated
        if updated != member:
            change.records.append(member_record(group.group_id, updated, change.sorted_names))
            change.names_changed = updated.subscribed_topic_names != member.subscribed_topic_names
        change.regex_change = self.regexes.update(
            group, member, updated, change.records, change.may_see
        )

    def update_epoch(self, change: Change, *, bump: bool) -> int:
        """Return the group epoch: a new one if asked for, or if topics have changed."""
        group, member, updated = change.group, change.member, change.updated
        if not bump and not self._has_unseen_topics(group):
            return group.group_epoch
        gone = member.regex
        is_last = (
            gone is not None and gone != updated.regex and group.subscribers_of_regex(gone) == 1
        )
        metadata_hash = self.hashes.of_group(
            group.subscribed_topics(
                without=(member,),
                added=updated,
                without_regexes=(gone,) if gone is not None and is_last else (),
            )
        )
        epoch = group.group_epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            change.records.append(group_epoch_record(group.group_id, epoch, metadata_hash))
        group.checked_version = self.topics_version
        group.checked_epoch = epoch
        if group.has_subscription_metadata_record:
            change.records.append(subscription_metadata_tombstone(group.group_id))
        return epoch

    def _has_unseen_topics(self, group: ConsumerGroup) -> bool:
        # The epoch lags if the one that was to be written was refused by the log.
        return (
            group.checked_version != self.topics_version or group.group_epoch < group.checked_epoch
        )

    def update_target(self, change: Change, epoch: int) -> tuple[int, Assignment]:
        """Return the target's epoch and the member's part; computed anew for a new group epoch."""
        group, updated = change.group, change.updated
        if epoch <= group.target_epoch:
            return group.target_epoch, group.target_of(updated)
        target = assign(
            group,
            updated,
            self._context.topics,
            epoch=epoch,
            assignor=self._assignor(group.preferred_assignor(change.member, updated)),
        )
        change.records += target.records
        return epoch, target.own

    def _assignor(self, preferred: str | None) -> str:
        offered = self._context.settings().group_consumer_assignors
        return preferred if preferred in offered and preferred is not None else offered[0]

    def reconcile(
        self, change: Change, target_epoch: int, target: Assignment, owned: Assignment | None
    ) -> None:
        """Move the member a step towards its target."""
        group, member = change.group, change.updated
        if not change.subscription_changed and member.is_reconciled_to(target_epoch):
            return
        step = Step(
            group,
            member,
            self._context.topics,
            target_epoch=target_epoch,
            target=target,
            owned=owned,
        )
        updated = step.next(subscription_changed=change.subscription_changed)
        if updated == member:
            return
        change.updated = updated
        change.records.append(current_record(group.group_id, updated))
        if updated.uses_classic_protocol:
            return
        if updated.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.set_rebalance(group.group_id, updated)
        else:
            self._timers.cancel_rebalance(group.group_id, updated.member_id)


def replace_static_member(
    group: ConsumerGroup,
    predecessor: ConsumerMember,
    member_id: str,
    records: list[CoordinatorRecord],
) -> ConsumerMember:
    """Let a static member that came back take over everything of its instance."""
    member = replace(
        predecessor, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
    )
    records += member_tombstones(group.group_id, predecessor.member_id)
    records.append(member_record(group.group_id, member))
    target = group.target.get(predecessor.member_id, NO_PARTITIONS)
    records.append(target_record(group.group_id, member_id, target))
    records.append(current_record(group.group_id, member))
    return member


def check_released(predecessor: ConsumerMember, member_id: str) -> None:
    """Refuse an instance id that is used by a member that has not left."""
    if predecessor.member_epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"{member_id!r} cannot join with the instance id {predecessor.instance_id}: the "
            f"member {predecessor.member_id} has it.",
        )


def known_static_member(
    group: ConsumerGroup, instance_id: str, member_id: str | None
) -> ConsumerMember:
    """Return the member with an instance id; fence a member that was replaced under it."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{group.group_id} has no member with the instance id {instance_id}.",
        )
    if member_id is not None and member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"The member {member.member_id} has taken the instance id {instance_id} from "
            f"{member_id}.",
        )
    return member


def known_member(group: ConsumerGroup, instance_id: str | None, member_id: str) -> ConsumerMember:
    """Return a member, static or not."""
    if instance_id is None:
        return group.member(member_id)
    return known_static_member(group, instance_id, member_id)


def check_member_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Fence a member that is not in the epoch that the group has for it.

    The previous epoch is accepted if the response with the new one may have been lost: then the
    member owns nothing but what it is assigned.
    """
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    reply_may_be_lost = epoch == member.previous_member_epoch < member.member_epoch
    if reply_may_be_lost and owned is not None and _is_part_of(owned, member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member is in epoch {member.member_epoch}, not {epoch}. It must give up all its "
        "partitions and join again.",
    )


def _is_part_of(owned: Assignment, assigned: Assignment) -> bool:
    return all(
        topic_id in assigned and partitions <= assigned[topic_id]
        for topic_id, partitions in owned.items()
    )
