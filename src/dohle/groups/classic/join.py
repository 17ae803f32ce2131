"""JoinGroup (11) to a classic group.

- Without a member id, from v4 on: 79 with an id that must join within the session timeout
  (KIP-394). Before v4, and for static members, it joins at once.
- A static member without a member id takes the place of the one with its instance id, which is
  fenced (82 for its waiting requests). In a Stable group whose protocol stays the same there is no
  rebalance: the group is written with the new id. The response in v9+ tells the leader to skip the
  assignment (KIP-814); in older versions it names the old leader, so that nobody assigns.
- A full group lets nobody in: 81. If ``group.max.size`` was lowered, those who rejoin last are
  refused.
- A member that joins again: the leader of a Stable group, and a member whose protocols have
  changed, cause a rebalance; others are told the current generation.
"""

from __future__ import annotations

from uuid import UUID

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.classic.member import ClassicMember
from dohle.groups.classic.protocols import Offer
from dohle.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalances
from dohle.groups.classic.records import group_record
from dohle.groups.context import GroupContext
from dohle.groups.group import Caller
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_REBALANCE_TIMEOUT_VERSION = 1
_MEMBER_ID_REQUIRED_VERSION = 4
_SKIP_ASSIGNMENT_VERSION = 9
#: The longest string of a record.
_MEMBER_ID_BYTES_MAX = 32_767


class Joins:
    """Lets members join classic groups."""

    def __init__(self, context: GroupContext, rebalances: Rebalances) -> None:
        self._context = context
        self._rebalances = rebalances

    def join(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        offered: Offer,
        ticket: Ticket,
        caller: Caller,
    ) -> Effects:
        """Let a member join, or tell it why not."""
        if caller.version < _REBALANCE_TIMEOUT_VERSION:
            request = request.replace(rebalance_timeout_ms=request.session_timeout_ms)
        member_id = request.member_id
        if not self._has_room_for(group, member_id):
            effects = Effects(replies=self._rebalances.let_go(group, member_id))
            effects.and_then(self._rebalances.complete_if_all_joined(group))
            return effects.reply(
                ticket, JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
            )
        if not group.supports_protocols(request.protocol_type, offered):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the members of group {group.group_id} know none of the protocols",
            )
        if not member_id:
            return self._join_new(group, request, offered, ticket, caller)
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"{member_id} was not given to a static member"
                )
            return self._add(group, request, offered, member_id, ticket, caller)
        return self._rejoin(group, request, offered, ticket)

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        """Tell whether a member may join.

        During a rebalance only those who have rejoined count: the group may be larger than allowed.
        """
        size_max = self._context.settings().group_max_size
        member = group.members.get(member_id)
        match group.state:
            case ClassicState.PREPARING_REBALANCE:
                is_awaited = member is not None and member.is_awaiting_join
                return is_awaited or group.awaiting_join_count < size_max
            case ClassicState.COMPLETING_REBALANCE | ClassicState.STABLE:
                return member is not None or len(group.members) < size_max
            case _:
                return True

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        offered: Offer,
        ticket: Ticket,
        caller: Caller,
    ) -> Effects:
        instance_id = request.group_instance_id
        member_id = self._new_member_id(caller.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                return self._replace(group, request, offered, (old_id, member_id), ticket, caller)
        elif caller.version >= _MEMBER_ID_REQUIRED_VERSION:
            self._rebalances.expect_join(group, member_id, request.session_timeout_ms)
            return Effects().reply(
                ticket,
                JoinGroupResponse(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED),
            )
        return self._add(group, request, offered, member_id, ticket, caller)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        offered: Offer,
        member_id: str,
        ticket: Ticket,
        caller: Caller,
    ) -> Effects:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            offered,
            join_ticket=ticket,
            is_new=True,
        )
        if group.initial_delay_ms is not None:
            group.has_new_member = True
        group.add(member)
        self._rebalances.keep_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalances.rebalance(group, _reason(f"{member_id} joins", request))

    def _rejoin(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        offered: Offer,
        ticket: Ticket,
    ) -> Effects:
        member_id = request.member_id
        group.validate_member(member_id, request.group_instance_id)
        member = group.members[member_id]
        is_same = member.offer == offered
        match group.state:
            case ClassicState.COMPLETING_REBALANCE if is_same:
                return Effects().reply(ticket, group.join_response(member_id))
            case ClassicState.STABLE if is_same and member_id != group.leader_id:
                return Effects().reply(ticket, group.join_response(member_id))
        group.update(member, offered, request.rebalance_timeout_ms, request.session_timeout_ms)
        effects = Effects(replies=group.await_join(member, ticket))
        reason = _reason(f"{member_id} joins again", request)
        return effects.and_then(self._rebalances.rebalance(group, reason))

    def _replace(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        offered: Offer,
        ids: tuple[str, str],
        ticket: Ticket,
        caller: Caller,
    ) -> Effects:
        """Give a static member's place to the process that joins with a new id."""
        old_id, new_id = ids
        old_leader_id = group.leader_id
        self._rebalances.end_session(group, old_id)
        effects = Effects(replies=group.replace_static_member(old_id, new_id))
        member = group.members[new_id]
        before = (member.offer, member.rebalance_timeout_ms, member.session_timeout_ms)
        after = (offered, request.rebalance_timeout_ms, request.session_timeout_ms)
        # Its session starts with the old timeout, as in Kafka; it is answered soon.
        self._rebalances.keep_session(group, member)
        group.update(member, *after)
        if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol_name:
            effects.replies += group.await_join(member, ticket)
            reason = _reason(f"{new_id} takes the place of {old_id}", request)
            return effects.and_then(self._rebalances.rebalance(group, reason))

        def undo(error: KafkaError) -> Effects:
            if new_id in group.members:
                group.update(member, *before)
                group.replace_static_member(new_id, old_id)
                self._rebalances.end_session(group, new_id)
                self._rebalances.keep_session(group, member)
            return Effects(replies=effects.replies[:-1]).reply(ticket, error)

        effects.undo = undo
        effects.records.append(
            group_record(group, {m.member_id: m.assignment for m in group.members.values()})
        )
        if caller.version >= _SKIP_ASSIGNMENT_VERSION:
            is_leader = new_id == group.leader_id
            return effects.reply(ticket, group.join_response(new_id, skip_assignment=is_leader))
        return effects.reply(ticket, group.join_response(new_id, leader_id=old_leader_id))

    def _new_member_id(self, prefix: str) -> str:
        member_id = f"{prefix}-{UUID(int=self._context.rng.getrandbits(128), version=4)}"
        if len(member_id.encode()) > _MEMBER_ID_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client id is too long")
        return member_id


def _reason(what: str, request: JoinGroupRequest) -> str:
    return f"{what}; the client's reason: {request.reason or 'not provided'}"
