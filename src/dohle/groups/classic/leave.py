"""LeaveGroup (13) to a classic group.

From v3 on a request names many members, each by its member id, its instance id, or both; with the
instance id alone an administrator removes a static member. Every member gets its own error, except
in v0-2, where the response has the error of the single member. A member that leaves while a request
of it is waiting gets 25 for that request.
"""

from __future__ import annotations

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.classic.rebalance import Rebalances
from dohle.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_BATCHED = 3


def members_leaving(request: LeaveGroupRequest, version: int) -> LeaveGroupRequest:
    """Convert a request of any version to one that lists its members."""
    if version >= _BATCHED:
        return request
    return request.replace(members=(MemberIdentity(member_id=request.member_id),))


def leave_response(response: LeaveGroupResponse, version: int) -> LeaveGroupResponse:
    """Return the response for the version: before v3 the member's error is the response's."""
    if version >= _BATCHED:
        return response
    codes = [response.error_code, *(member.error_code for member in response.members)]
    return LeaveGroupResponse(error_code=next((code for code in codes if code), ErrorCode.NONE))


class Leaves:
    """Lets members leave classic groups."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest, ticket: Ticket) -> Effects:
        """Remove members; the others rebalance."""
        effects = Effects()
        answers = []
        left: list[str] = []
        for identity in request.members:
            code = ErrorCode.NONE
            try:
                effects.replies += self._remove(group, identity).replies
                left.append(_described(identity))
            except KafkaError as error:
                code = error.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
            )
        if left:
            effects.and_then(self._go_on(group, f"{', '.join(left)} left"))
        return effects.reply(ticket, LeaveGroupResponse(members=tuple(answers)))

    def _remove(self, group: ClassicGroup, identity: MemberIdentity) -> Effects:
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            member_id = group.static_members.get(identity.group_instance_id, "")
        if member_id not in group.pending_joins:
            group.validate_member(member_id, identity.group_instance_id)
        return Effects(replies=self._rebalances.let_go(group, member_id))

    def _go_on(self, group: ClassicGroup, reason: str) -> Effects:
        match group.state:
            case ClassicState.EMPTY | ClassicState.DEAD:
                return Effects()
            case _:
                return self._rebalances.rebalance(group, reason)


def _described(identity: MemberIdentity) -> str:
    who = identity.member_id or identity.group_instance_id
    return f"{who} ({identity.reason or 'not provided'})"
