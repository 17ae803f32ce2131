"""Reconciliation: how a member moves from its current to its target assignment.

A member that has to give partitions back stays in its epoch (UNREVOKED_PARTITIONS) until it no
longer reports them as owned. Then it takes the target's epoch and gets those partitions of its
target that are free; while others still own some, it is in UNRELEASED_PARTITIONS. With all of its
target it is STABLE. In every state, partitions of a topic that it is no longer subscribed to are
revoked at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.groups.assignors.assignment import Assignment
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import NO_PARTITIONS, ConsumerMember, MemberState
from dohle.groups.consumer.resolved_regex import ResolvedRegex
from dohle.groups.context import Topics, without_unknown

_NONE: frozenset[int] = frozenset()


class Step:
    """One reconciliation step of a member, with everything it depends on."""

    __slots__ = ("_group", "_member", "_owned", "_subscribed", "_target", "_target_epoch")

    def __init__(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        topics: Topics,
        *,
        target_epoch: int,
        target: Assignment,
        owned: Assignment | None,
    ) -> None:
        """``owned`` is what the member reports as owned; None if it does not report it."""
        self._group = group
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._owned = owned
        self._subscribed = subscribed_topic_ids(group, member, topics)

    def next(self, *, subscription_changed: bool) -> ConsumerMember:
        """Return the member after this step: the same one if there is nothing to do."""
        member = self._member
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch != self._target_epoch:
                    return self._advance(member.member_epoch)
                return self._drop_unsubscribed() if subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if self._owns_any_of(member.pending_revocation):
                    return self._drop_unsubscribed() if subscription_changed else member
                return self._advance(member.member_epoch)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._advance(member.member_epoch)
            case _:
                if self._owned is None or self._owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The member's state is not known here. It must give up all its "
                        "partitions and join again.",
                    )
                return self._advance(self._target_epoch)

    def _advance(self, epoch: int) -> ConsumerMember:
        """Move as far towards the target as possible."""
        member = self._member
        keeps: dict[Uuid, frozenset[int]] = {}
        gives_back: dict[Uuid, frozenset[int]] = {}
        gets: dict[Uuid, frozenset[int]] = {}
        waits = False
        for topic_id in {**self._target, **member.assigned}:
            has = member.assigned.get(topic_id, _NONE)
            target = self._target.get(topic_id, _NONE) if topic_id in self._subscribed else _NONE
            missing = target - has
            free = frozenset(index for index in missing if self._is_free(topic_id, index))
            waits = waits or len(free) < len(missing)
            for result, partitions in ((keeps, has & target), (gives_back, has - target)):
                if partitions:
                    result[topic_id] = partitions
            if has & target or free:
                gets[topic_id] = (has & target) | free
        if gives_back and self._owns_any_of(gives_back):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                member_epoch=epoch,
                previous_member_epoch=member.member_epoch,
                assigned=keeps,
                pending_revocation=gives_back,
            )
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
            member_epoch=self._target_epoch,
            previous_member_epoch=member.member_epoch,
            assigned=gets,
            pending_revocation=NO_PARTITIONS,
        )

    def _is_free(self, topic_id: Uuid, partition: int) -> bool:
        """Tell whether a partition has no owner, or the member itself has just given it back."""
        return self._group.owner(
            topic_id, partition
        ) is None or partition in self._member.pending_revocation.get(topic_id, _NONE)

    def _drop_unsubscribed(self) -> ConsumerMember:
        """Revoke topics that the member no longer subscribes to, before there is a new target."""
        member = self._member
        dropped = {
            topic_id: partitions
            for topic_id, partitions in member.assigned.items()
            if topic_id not in self._subscribed
        }
        if not dropped:
            return member
        keeps = {
            topic_id: partitions
            for topic_id, partitions in member.assigned.items()
            if topic_id not in dropped
        }
        gives_back = dict(member.pending_revocation)
        for topic_id, partitions in dropped.items():
            gives_back[topic_id] = gives_back.get(topic_id, _NONE) | partitions
        if not self._owns_any_of(gives_back):
            return replace(member, assigned=keeps)
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=keeps,
            pending_revocation=gives_back,
        )

    def _owns_any_of(self, partitions_of: Assignment) -> bool:
        """Tell whether the member may still own any of these: it may if it does not report them."""
        return self._owned is None or any(
            partitions & partitions_of.get(topic_id, _NONE)
            for topic_id, partitions in self._owned.items()
        )


def subscribed_topic_ids(
    group: ConsumerGroup, member: ConsumerMember, topics: Topics
) -> Collection[Uuid]:
    """Return the existing topics that a member subscribes to."""
    return topic_ids(subscribed_topic_names(group.resolved_regexes, member), topics)


def subscribed_topic_names(
    resolved_regexes: Mapping[str, ResolvedRegex], member: ConsumerMember
) -> frozenset[str]:
    """Return the names a member subscribes to; an unresolved expression adds none."""
    resolved = resolved_regexes.get(member.regex) if member.regex is not None else None
    if resolved is None or not resolved.topics:
        return member.subscribed_topic_names
    return member.subscribed_topic_names | resolved.topics


def topic_ids(names: Collection[str], topics: Topics) -> frozenset[Uuid]:
    """Return the ids of those topics that exist."""
    return frozenset(
        topic_id
        for name in without_unknown(names, topics)
        if (topic_id := topics.id_of(name)) is not None
    )
