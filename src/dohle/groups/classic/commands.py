"""The classic groups of a shard: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A group of the consumer protocol (KIP-848) may have members that still use the classic one: their
requests are passed on to the consumer groups. An empty consumer group becomes a classic one when a
member joins it with JoinGroup.

A group exists once its record is replayed: a command that creates one keeps it aside until then.
While the shard runs, the record of an existing group makes it Stable and gives its members their
assignments; while the shard loads, the record is the only source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dohle.coordination.effects import Effects, Ticket, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.classic.join import Joins
from dohle.groups.classic.leave import Leaves, leave_response, members_leaving
from dohle.groups.classic.protocols import Offer
from dohle.groups.classic.rebalance import Rebalances
from dohle.groups.classic.records import group_of, group_record, new_group_record
from dohle.groups.classic.sync import Syncs
from dohle.groups.context import GroupContext, GroupTimerKey
from dohle.groups.group import Caller, Group
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dohle.protocol.messages.join_group import JoinGroupRequest
from dohle.protocol.messages.leave_group import LeaveGroupRequest
from dohle.protocol.messages.records.classic_group import GroupMetadataKey, GroupMetadataValue
from dohle.protocol.messages.sync_group import SyncGroupRequest
from dohle.protocol.record_framing import CoordinatorRecord

if TYPE_CHECKING:
    from dohle.groups.consumer.commands import ConsumerGroups

#: In these states a commit counts as a heartbeat.
_COMMITS_COUNT = frozenset({ClassicState.STABLE, ClassicState.PREPARING_REBALANCE})


class ClassicGroups:
    """Executes the commands of classic groups; see the module."""

    RECORD_TYPES = frozenset({GroupMetadataKey.RECORD_TYPE})

    #: Set by the coordinator.
    consumer: ConsumerGroups

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._rebalances = Rebalances(context)
        self._joins = Joins(context, self._rebalances)
        self._syncs = Syncs(self._rebalances)
        self._leaves = Leaves(self._rebalances)
        # Groups whose record has not been replayed yet, and the reason why they will then
        # rebalance.
        self._coming: dict[str, tuple[ClassicGroup, str | None]] = {}
        self._is_loaded = False

    # Commands.

    def join_group(
        self, request: JoinGroupRequest, offered: Offer, ticket: Ticket, caller: Caller
    ) -> Effects:
        """Let a member join; it is answered when the rebalance is complete.

        ``offered`` are the protocols of the request.
        """
        settings = self._context.settings()
        lowest, highest = (
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
        )
        if not lowest <= request.session_timeout_ms <= highest:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"the session timeout must be between {lowest} and {highest} ms",
            )
        group = self._context.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._joins.join(group, request, offered, ticket, caller)
        if group is not None and not group.is_empty:
            return self.consumer.classic_join(request, ticket, caller)
        if request.member_id:
            raise _unknown_group(request.group_id)
        return self._join_new_group(group, request, offered, ticket, caller)

    def sync_group(
        self, request: SyncGroupRequest, given: Mapping[str, bytes], ticket: Ticket
    ) -> Effects:
        """Return a member's assignment, now or when the leader has sent it.

        ``given`` are the assignments of the request, by member id.
        """
        group = self._group(request.group_id)
        if group.is_empty:
            raise _unknown_group(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._syncs.sync(group, request, given, ticket)
        return self.consumer.classic_sync(request, ticket)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket) -> Effects:
        """Extend a member's session, and tell it about a rebalance."""
        group = self._group(request.group_id)
        if not isinstance(group, ClassicGroup):
            return self.consumer.classic_heartbeat(request, ticket)
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        self._rebalances.keep_session(group, group.members[request.member_id])
        is_preparing = group.state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE
        return Effects().reply(ticket, HeartbeatResponse(error_code=code))

    def leave_group(self, request: LeaveGroupRequest, ticket: Ticket, caller: Caller) -> Effects:
        """Let members leave."""
        group = self._group(request.group_id)
        request = members_leaving(request, caller.version)
        if isinstance(group, ClassicGroup):
            effects = self._leaves.leave(group, request, ticket)
        else:
            effects = self.consumer.classic_leave(request, ticket)
        effects.replies = [
            reply._replace(answer=leave_response(reply.answer, caller.version))
            if reply.ticket == ticket
            else reply
            for reply in effects.replies
        ]
        return effects

    # Used by the other parts.

    def get_or_create(self, group_id: str) -> ClassicGroup:
        """Return the group for offsets that are committed without members; create it if need be."""
        group = self._context.groups.get(group_id)
        if group is None:
            group = self._context.groups[group_id] = self.new_group(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} is not a classic group"
            )
        return group

    def keep_session(self, group: ClassicGroup, member_id: str) -> None:
        """Treat an offset commit as a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.state in _COMMITS_COUNT:
            self._rebalances.keep_session(group, member)

    def new_group(self, group_id: str) -> ClassicGroup:
        """Return a new Empty group that is not registered yet."""
        return ClassicGroup(group_id, self._context.clock.now_ms())

    def adopt(self, group: ClassicGroup, *, rebalance_reason: str | None) -> CoordinatorRecord:
        """Return the record with which a Stable group takes its place (a downgrade).

        With a reason it then starts a rebalance.
        """
        self._coming[group.group_id] = (group, rebalance_reason)
        return group_record(
            group, {member.member_id: member.assignment for member in group.members.values()}
        )

    def forget_adopted(self, group_id: str) -> None:
        """Drop a group whose record the log has refused."""
        coming = self._coming.pop(group_id, None)
        if coming is not None:
            self._rebalances.cancel_timers(coming[0])

    # The log and the clock.

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        """Apply the record of a group, or its tombstone."""
        key, value = record.key, record.value
        if not isinstance(key, GroupMetadataKey):
            raise TypeError(f"{type(key).__name__} is not of a classic group")
        group = self._context.groups.get(key.group)
        if not isinstance(value, GroupMetadataValue):
            if isinstance(group, ClassicGroup):
                self._delete(group)
            return
        coming = self._coming.pop(key.group, None)
        if coming is not None:
            self._take_in(*coming)
        elif self._is_loaded and isinstance(group, ClassicGroup):
            _take_over(group, value)
        else:
            self._context.groups[key.group] = group_of(key.group, value)

    def on_loaded(self) -> PlainSteps[Effects]:
        """Start a session for every member; a group above the maximum size rebalances."""
        self._is_loaded = True
        effects = Effects()
        size_max = self._context.settings().group_max_size
        for group in list(self._context.groups.values()):
            yield
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                self._rebalances.keep_session(group, member)
            if len(group.members) > size_max:
                reason = f"it has {len(group.members)} members, and may have {size_max}"
                effects.and_then(self._rebalances.prepare(group, reason))
        return effects

    def on_timer(self, key: GroupTimerKey) -> Effects:
        """Handle an expired timer of a group or a member."""
        group = self._context.groups.get(key.group_id)
        if not isinstance(group, ClassicGroup):
            return Effects()
        return self._rebalances.on_timer(group, key.kind, key.member_id)

    def _group(self, group_id: str) -> Group:
        group = self._context.groups.get(group_id)
        if group is None:
            raise _unknown_group(group_id)
        return group

    def _join_new_group(
        self,
        former: Group | None,
        request: JoinGroupRequest,
        offered: Offer,
        ticket: Ticket,
        caller: Caller,
    ) -> Effects:
        """Create a group, in place of an empty consumer group if there is one."""
        group = self.new_group(request.group_id)
        effects = self._joins.join(group, request, offered, ticket, caller)
        if former is not None:
            effects.records += former.tombstones()
        effects.records.append(new_group_record(group))
        self._coming[group.group_id] = (group, None)

        def undo(error: KafkaError) -> Effects:
            self.forget_adopted(group.group_id)
            return Effects().reply(ticket, error)

        effects.undo = undo
        return effects

    def _take_in(self, group: ClassicGroup, rebalance_reason: str | None) -> None:
        self._context.groups[group.group_id] = group
        if group.state is not ClassicState.STABLE:
            return
        for member in group.members.values():
            self._rebalances.keep_session(group, member)
        if rebalance_reason is not None:
            # Nobody waits in it yet, so there is nothing to answer or to write.
            self._rebalances.prepare(group, rebalance_reason)

    def _delete(self, group: ClassicGroup) -> None:
        self._rebalances.cancel_timers(group)
        del self._context.groups[group.group_id]
        group.move_to(ClassicState.DEAD, None)


def _take_over(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Bring a running group to the state of the record that was just written for it."""
    for described in value.members:
        group.members[described.member_id].assignment = described.assignment
    if group.state is ClassicState.COMPLETING_REBALANCE:
        group.move_to(ClassicState.STABLE, group.state_since_ms)


def _unknown_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}")
