"""The consumer groups (KIP-848) of a shard: heartbeats, records and deadlines.

A member does everything by heartbeats: epoch 0 joins, -1 leaves, -2 leaves temporarily (a static
member). With any other epoch it reports what has changed and what it owns, and gets its epoch and,
when it changes, its assignment.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dohle.coordination.effects import Effects, Reply, Ticket, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.groups.assignors.assignment import Assignment
from dohle.groups.classic.commands import ClassicGroups
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.consumer.classic_members import ClassicMembers
from dohle.groups.consumer.deadlines import REBALANCE, REGEX, MemberTimers
from dohle.groups.consumer.describe import describe_group
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.leave import Departures
from dohle.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from dohle.groups.consumer.migration import Migration
from dohle.groups.consumer.replay import RECORD_TYPES, replay_record
from dohle.groups.consumer.report import Report
from dohle.groups.consumer.steps import (
    Change,
    MemberSteps,
    check_member_epoch,
    check_released,
    known_member,
    known_static_member,
    replace_static_member,
)
from dohle.groups.consumer.subscriptions import RegexChange
from dohle.groups.context import GroupContext, GroupTimerKey
from dohle.groups.group import Caller
from dohle.protocol.messages.consumer_group_describe import DescribedGroup
from dohle.protocol.messages.consumer_group_heartbeat import (
    Assignment as HeartbeatAssignment,
)
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.join_group import JoinGroupRequest
from dohle.protocol.messages.leave_group import LeaveGroupRequest
from dohle.protocol.messages.sync_group import SyncGroupRequest
from dohle.protocol.record_framing import CoordinatorRecord

_NO_TIMEOUT = -1


class ConsumerGroups:
    """Executes the commands of members of consumer groups."""

    RECORD_TYPES = RECORD_TYPES

    def __init__(self, context: GroupContext, classic: ClassicGroups) -> None:
        self._context = context
        self._timers = MemberTimers(context)
        self._steps = MemberSteps(context, self._timers)
        self._migration = Migration(context, classic, self._steps.hashes)
        self._departures = Departures(self._timers, self._migration, self._steps.hashes)
        self._classic_members = ClassicMembers(
            context, self._steps, self._timers, self._departures, self._migration
        )

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        report: Report,
        ticket: Ticket,
        caller: Caller,
    ) -> Effects:
        """Join, stay, or leave; ``report`` is that of the request."""
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request, ticket)
        records: list[CoordinatorRecord] = []
        if request.member_epoch == JOIN_EPOCH:
            group = self._group_to_join(request.group_id, records)
        else:
            group = self._group(request.group_id)
        self._steps.check_size(group, request.member_id)
        owned = report.owned
        member = self._find(group, request, owned, records)
        updated = _told(member, request, report.subscribed_topic_names, caller)
        change = Change(group, member, updated, records, report.sorted_names, caller.may_see)
        former = self._context.groups.get(request.group_id)
        # A pending rebalance is not dropped: partitions of a member that left may have no owner.
        is_due = isinstance(former, ClassicGroup) and former.state is not ClassicState.STABLE
        self._carry_on(change, owned, is_due=is_due)
        self._timers.set_session(group.group_id, member.member_id)
        effects = Effects(change.records)
        if isinstance(former, ClassicGroup):
            effects.replies += self._finish_upgrade(former, group)
        return effects.reply(ticket, self._response(request, change))

    def _carry_on(self, change: Change, owned: Assignment | None, *, is_due: bool) -> None:
        """Do all that follows from a member's report, or from a pending rebalance."""
        self._steps.write_member(change)
        # A regular expression that is not resolved yet will move the epoch when it is.
        bump = (
            is_due
            or change.group.group_epoch == 0
            or change.names_changed
            or change.regex_change is RegexChange.RESOLVED
        )
        epoch = self._steps.update_epoch(change, bump=bump)
        target_epoch, target = self._steps.update_target(change, epoch)
        self._steps.reconcile(change, target_epoch, target, owned)

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, change: Change
    ) -> ConsumerGroupHeartbeatResponse:
        """Build the response, with the assignment only if it changed or may be unknown."""
        updated = change.updated
        is_full = (
            request.rebalance_timeout_ms != _NO_TIMEOUT
            and request.topic_partitions is not None
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
        )
        assignment = None
        if (
            request.member_epoch == JOIN_EPOCH
            or is_full
            or updated.assigned != change.member.assigned
        ):
            assignment = HeartbeatAssignment(
                topic_partitions=tuple(
                    TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
                    for topic_id, partitions in updated.assigned.items()
                )
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self._timers.heartbeat_interval_ms(change.group.group_id),
            assignment=assignment,
        )

    def _leave(self, request: ConsumerGroupHeartbeatRequest, ticket: Ticket) -> Effects:
        group = self._group(request.group_id)
        member = known_member(group, request.instance_id, request.member_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            return self._departures.leave_for_a_while(group, member).reply(ticket, response)
        return self._departures.leave(group, [member], ticket, response)

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a consumer group."""
        default = self._context.settings().group_consumer_assignors[0]
        return describe_group(self._group(group_id), self._context.topics, default)

    # Finding the group and the member.

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def _group_to_join(self, group_id: str, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """Return the group, or a new one, or the consumer group that a classic group becomes."""
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if isinstance(group, ClassicGroup):
            if not group.is_empty:
                return self._migration.upgrade(group, records)
            records += group.tombstones()
        return ConsumerGroup(group_id)

    def _finish_upgrade(self, former: ClassicGroup, group: ConsumerGroup) -> list[Reply]:
        """Send the members that wait in a classic group into the new one."""
        for member in group.members.values():
            if member.classic is not None:
                # Some may be left from when it was a consumer group before.
                self._timers.cancel_all(group.group_id, member.member_id)
                self._timers.set_session(
                    group.group_id, member.member_id, member.classic.session_timeout_ms
                )
        return former.answer_all(ErrorCode.REBALANCE_IN_PROGRESS)

    def _find(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        owned: Assignment | None,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        """Return the sender: known, new, or in the place of a static member that left."""
        member_id = request.member_id or uuid_to_text(random_uuid(self._context.rng))
        is_joining = request.member_epoch == JOIN_EPOCH
        instance_id = request.instance_id
        if instance_id is None:
            if is_joining and member_id not in group.members:
                return ConsumerMember(member_id)
            member = group.member(member_id)
        elif is_joining:
            predecessor = group.static_member(instance_id)
            if predecessor is None:
                return group.members.get(member_id) or ConsumerMember(member_id)
            if not predecessor.uses_classic_protocol:
                check_released(predecessor, member_id)
            return replace_static_member(group, predecessor, member_id, records)
        else:
            member = known_static_member(group, instance_id, member_id)
        check_member_epoch(member, request.member_epoch, owned)
        return member

    # The classic protocol in a consumer group.

    def classic_join(self, request: JoinGroupRequest, ticket: Ticket, caller: Caller) -> Effects:
        """Let a member of the classic protocol join a group that has members."""
        group = self._group(request.group_id)
        return self._classic_members.join(group, request, ticket, caller)

    def classic_sync(self, request: SyncGroupRequest, ticket: Ticket) -> Effects:
        """Return its assignment."""
        return self._classic_members.sync(self._group(request.group_id), request, ticket)

    def classic_heartbeat(self, request: HeartbeatRequest, ticket: Ticket) -> Effects:
        """Tell it whether it has to join again."""
        return self._classic_members.heartbeat(self._group(request.group_id), request, ticket)

    def classic_leave(self, request: LeaveGroupRequest, ticket: Ticket) -> Effects:
        """Remove members."""
        return self._classic_members.leave(self._group(request.group_id), request, ticket)

    # Topics, the log and the clock.

    def on_topics_changed(
        self,
        changed: Collection[str],
        deleted: Collection[str],
        created: Collection[str] | None = None,
    ) -> Effects:
        """Make every group check its topics at its next heartbeat.

        Regular expressions may match the topics in ``created``; None means that any topic may be
        new.
        """
        self._steps.topics_version += 1
        self._steps.hashes.forget([*changed, *deleted])
        if changed if created is None else created:
            self._steps.regexes.on_topics_created()
        return Effects()

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        """Apply a record of a consumer group."""
        replay_record(self._context.groups, record)

    def on_loaded(self) -> PlainSteps[None]:
        """Start a session for every member, and the deadline for partitions it has to give back."""
        for group in self._context.groups.values():
            yield
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self._timers.set_session(group.group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._timers.set_rebalance(group.group_id, member)
        # Last, since a machine is not told of new topics before it is loaded.
        self._steps.regexes.on_topics_created()

    def on_timer(self, key: GroupTimerKey) -> Effects:
        """Resolve regular expressions, or remove a member that has missed a deadline."""
        if key.kind == REGEX:
            return self._steps.regexes.on_timer(key)
        epoch_to_leave = self._timers.epoch_to_leave(key) if key.kind == REBALANCE else None
        group = self._context.groups.get(key.group_id)
        member = group.members.get(key.member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return Effects()
        if key.kind == REBALANCE and member.member_epoch != epoch_to_leave:
            return Effects()
        return self._departures.put_out(group, member, key, epoch_to_leave)


def _told(
    member: ConsumerMember,
    request: ConsumerGroupHeartbeatRequest,
    names: frozenset[str] | None,
    caller: Caller,
) -> ConsumerMember:
    """Return the member with what it reported now: null means unchanged."""
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == _NO_TIMEOUT else timeout_ms
        ),
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else names,
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
