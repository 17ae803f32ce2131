"""Members of the classic protocol in a consumer group.

They cannot be sent a new assignment; instead a heartbeat tells them that a rebalance is in
progress, they join again, and SyncGroup returns what the server assigned. The member epoch is their
generation. There is no leader: a member is never asked to assign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.groups.assignors.assignment import Assignment
from dohle.groups.consumer.deadlines import JOIN, SYNC, MemberTimers
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.leave import Departures
from dohle.groups.consumer.member import ConsumerMember, MemberState
from dohle.groups.consumer.migration import Migration, assignment_bytes
from dohle.groups.consumer.steps import (
    Change,
    MemberSteps,
    known_member,
    known_static_member,
    replace_static_member,
)
from dohle.groups.consumer.subscriptions import RegexChange
from dohle.groups.context import GroupContext, Topics
from dohle.groups.group import Caller
from dohle.protocol.consumer_framing import CONSUMER_PROTOCOL_TYPE, read_subscription
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from dohle.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from dohle.protocol.messages.records.consumer_group import ClassicMemberMetadata, ClassicProtocol
from dohle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from dohle.protocol.record_framing import CoordinatorRecord

_MEMBER_ID_REQUIRED_VERSION = 4
_NO_TIMEOUT = -1


class ClassicMembers:
    """Serves the classic protocol to members of consumer groups."""

    __slots__ = ("_context", "_departures", "_migration", "_steps", "_timers")

    def __init__(
        self,
        context: GroupContext,
        steps: MemberSteps,
        timers: MemberTimers,
        departures: Departures,
        migration: Migration,
    ) -> None:
        self._context = context
        self._steps = steps
        self._timers = timers
        self._departures = departures
        self._migration = migration

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, ticket: Ticket, caller: Caller
    ) -> Effects:
        """Let a member join, or join again to get its current assignment."""
        member_id = request.member_id or uuid_to_text(random_uuid(self._context.rng))
        self._steps.check_size(group, member_id)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Not all members of {group.group_id} know a protocol of {member_id}.",
            )
        if (
            not request.member_id
            and request.group_instance_id is None
            and caller.version >= _MEMBER_ID_REQUIRED_VERSION
        ):
            required = JoinGroupResponse(
                member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED
            )
            return Effects().reply(ticket, required)
        subscription = _subscription(request)
        records: list[CoordinatorRecord] = []
        member = _find(group, request, member_id, records)
        updated = _told(member, request, caller, subscription)
        change = Change(group, member, updated, records, may_see=caller.may_see)
        predecessor = group.static_member(request.group_instance_id)
        effects, is_downgrade = self._rejoin(change, predecessor, subscription)
        response = JoinGroupResponse(
            member_id=change.updated.member_id,
            generation_id=change.updated.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=names[0],
        )
        self._timers.cancel(JOIN, group.group_id, member_id)
        if not is_downgrade:
            self._timers.set_session(group.group_id, member_id, request.session_timeout_ms)
            self._timers.set_sync(group.group_id, member_id, max(0, request.rebalance_timeout_ms))
        effects.undo = self._undo_join(group.group_id, member_id, ticket)
        return effects.reply(ticket, response)

    def _undo_join(
        self, group_id: str, member_id: str, ticket: Ticket
    ) -> Callable[[KafkaError], Effects]:
        def undo(error: KafkaError) -> Effects:
            self._migration.forget(group_id)
            self._timers.cancel(SYNC, group_id, member_id)
            return Effects().reply(ticket, error)

        return undo

    def _rejoin(
        self,
        change: Change,
        predecessor: ConsumerMember | None,
        subscription: ConsumerProtocolSubscription,
    ) -> tuple[Effects, bool]:
        """Advance the member as far as possible; with it the group, if this is a downgrade."""
        group = change.group
        is_downgrade = predecessor is not None and self._migration.can_downgrade(
            group, [predecessor], is_replaced=True
        )
        self._steps.write_member(change)
        bump = change.names_changed or change.regex_change is not RegexChange.NONE
        epoch = self._steps.update_epoch(change, bump=bump)
        owned = _owned(subscription, self._context.topics)
        if not is_downgrade:
            target_epoch, target = self._steps.update_target(change, epoch)
            self._steps.reconcile(change, target_epoch, target, owned)
            return Effects(change.records), False
        if not bump:
            target = group.target_of(change.updated)
            self._steps.reconcile(change, group.target_epoch, target, owned)
        reason = None
        if bump:
            reason = "a static member came back with another subscription"
        elif epoch != group.target_epoch or not _others_are_reconciled(group, predecessor):
            # Kafka does not rebalance here: a partition could have two owners, or none.
            reason = "a static member came back while partitions were on the move"
        effects = Effects(change.records)
        effects.and_then(
            self._migration.downgrade(group, joining=change.updated, rebalance_reason=reason)
        )
        return effects, True

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, ticket: Ticket) -> Effects:
        """Return a member's assignment."""
        member = self._classic_member(group, request)
        protocol = member.classic_protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            request.protocol_name not in (None, protocol.name)
        ):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{member.member_id} joined with the protocol {protocol.name}.",
            )
        if (
            group.group_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._timers.set_join(group.group_id, member)
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"{group.group_id} has gone on to the epoch {group.group_epoch}.",
            )
        self._timers.cancel(SYNC, group.group_id, member.member_id)
        self._keep_session(group, member)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.assigned, protocol.metadata, self._context.topics),
        )
        return Effects().reply(ticket, response)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, ticket: Ticket) -> Effects:
        """Tell a member whether it has to join again: to give partitions back, or to get some."""
        member = self._classic_member(group, request)
        self._keep_session(group, member)
        has_news = (
            member.member_epoch < group.group_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not group.waits_for_others(member)
            )
        )
        if has_news:
            self._timers.set_join(group.group_id, member)
        code = ErrorCode.REBALANCE_IN_PROGRESS if has_news else ErrorCode.NONE
        return Effects().reply(ticket, HeartbeatResponse(error_code=code))

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest, ticket: Ticket) -> Effects:
        """Remove members."""
        leaving: dict[str, ConsumerMember] = {}
        answers: list[MemberResponse] = []
        for identity in request.members:
            code = ErrorCode.NONE
            try:
                member = _leaving_member(group, identity)
                leaving[member.member_id] = member
            except KafkaError as error:
                code = error.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
            )
        response = LeaveGroupResponse(members=tuple(answers))
        return self._departures.leave(group, list(leaving.values()), ticket, response)

    def _classic_member(
        self, group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
    ) -> ConsumerMember:
        """Return the sender of a request, if it joined by JoinGroup and is in its generation."""
        member = known_member(group, request.group_instance_id, request.member_id)
        if not member.uses_classic_protocol:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{member.member_id} does not speak the classic protocol.",
            )
        if request.generation_id != member.member_epoch:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"{member.member_id} is in epoch {member.member_epoch}, not in generation "
                f"{request.generation_id}.",
            )
        return member

    def _keep_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        timeout_ms = member.classic.session_timeout_ms if member.classic is not None else None
        self._timers.set_session(group.group_id, member.member_id, timeout_ms)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except MalformedMessage as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"A consumer's subscription is malformed: {error}",
        ) from None


def _find(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member_id: str,
    records: list[CoordinatorRecord],
) -> ConsumerMember:
    """Return the member that joins: known, new, or in the place of a static one."""
    instance_id = request.group_instance_id
    if instance_id is not None and request.member_id:
        return known_static_member(group, instance_id, member_id)
    predecessor = group.static_member(instance_id)
    if predecessor is not None:
        return replace_static_member(group, predecessor, member_id, records)
    return group.members.get(member_id) or ConsumerMember(member_id)


def _told(
    member: ConsumerMember,
    request: JoinGroupRequest,
    caller: Caller,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerMember:
    instance_id, timeout_ms = request.group_instance_id, request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == _NO_TIMEOUT else timeout_ms
        ),
        subscribed_topic_names=frozenset(subscription.topics),
        # The classic protocol has no regular expressions that the server resolves.
        subscribed_topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in request.protocols
            ),
        ),
    )


def _owned(subscription: ConsumerProtocolSubscription, topics: Topics) -> Assignment:
    return {
        topic_id: frozenset(part.partitions)
        for part in subscription.owned_partitions
        if (topic_id := topics.id_of(part.topic)) is not None
    }


def _others_are_reconciled(group: ConsumerGroup, but: ConsumerMember | None) -> bool:
    return all(
        member is but or member.is_reconciled_to(group.target_epoch)
        for member in group.members.values()
    )


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Return a member that leaves; an administrator may give only an instance id."""
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    return known_static_member(group, identity.group_instance_id, identity.member_id or None)
