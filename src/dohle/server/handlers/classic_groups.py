"""JoinGroup (11) v0-9, SyncGroup (14) v0-5, Heartbeat (12) v0-4 and LeaveGroup (13) v0-5.

How a group handles them is in :mod:`dohle.groups.classic.commands`; here they are checked first.

- No group id: 24.
- SyncGroup v5 without the protocol's type or name: 23, before anything else.
- The answer to a refused JoinGroup has no protocol: null from v7 on, and "" before.
- A heartbeat to a coordinator that is still loading is answered 0: the member is not lost, and its
  session timeout starts anew when the group is loaded.
- Leaving a group that does not exist: 25 for every member.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.groups.classic.leave import leave_response, members_leaving
from dohle.groups.classic.protocols import offer_of
from dohle.groups.classic.sync import assignments_given
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dohle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from dohle.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from dohle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from dohle.server.coordinators.errors import coordinator_error_code
from dohle.server.net.callers import caller_of
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices
from dohle.server.rights import seeing_caller

if TYPE_CHECKING:
    from dohle.coordination.effects import Effects, Ticket
    from dohle.groups.coordinator import GroupCoordinator
    from dohle.protocol.schema import Response
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext
    from dohle.server.net.outcome import Answer

#: The first JoinGroup answered without a protocol, and the first SyncGroup that needs one.
_NULL_PROTOCOL_VERSION = 7
_PROTOCOL_VERSION = 5
#: How many members leave in one step.
_LEAVING_AT_ONCE = 500

_NO_GROUP_ID = KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
_NO_PROTOCOL = KafkaError(
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol's type or name is missing"
)


def handle_join_group(
    broker: BrokerServer, context: RequestContext, request: JoinGroupRequest
) -> PlainSteps[Answer | Coroutine[Any, Any, JoinGroupResponse]]:
    """Let a member join a group; the answer comes when the rebalance is complete."""

    def refuse(error: KafkaError) -> JoinGroupResponse:
        return JoinGroupResponse(
            member_id=request.member_id, error_code=coordinator_error_code(error), protocol_name=""
        )

    caller = seeing_caller(broker, context)
    answer: Answer
    if not request.group_id:
        answer = refuse(_NO_GROUP_ID)
    else:
        offered = yield from offer_of((each.name, each.metadata) for each in request.protocols)
        answer = broker.groups.submit(
            request.group_id,
            lambda machine, ticket: machine.classic.join_group(request, offered, ticket, caller),
            refuse,
        )
    if context.version < _NULL_PROTOCOL_VERSION:
        return answer
    if callable(answer):
        late = answer
        return lambda: _unnamed(late())
    return _unnamed(answer)


def _unnamed(
    answer: Response | Awaitable[Any] | None,
) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    """Replace an empty protocol name in an answer by null."""
    if isinstance(answer, Awaitable):
        return _unnamed_later(answer)
    assert isinstance(answer, JoinGroupResponse)
    return answer if answer.protocol_name else answer.replace(protocol_name=None)


async def _unnamed_later(answer: Awaitable[Any]) -> JoinGroupResponse:
    response: JoinGroupResponse = await answer
    return response if response.protocol_name else response.replace(protocol_name=None)


def handle_sync_group(
    broker: BrokerServer, context: RequestContext, request: SyncGroupRequest
) -> PlainSteps[Answer]:
    """Return a member's assignment; the answer comes when the group's leader has sent it."""
    if context.version >= _PROTOCOL_VERSION and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return _refuse_sync(_NO_PROTOCOL)
    if not request.group_id:
        return _refuse_sync(_NO_GROUP_ID)
    given = yield from assignments_given(request)
    return broker.groups.submit(
        request.group_id,
        lambda machine, ticket: machine.classic.sync_group(request, given, ticket),
        _refuse_sync,
    )


def _refuse_sync(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=coordinator_error_code(error))


def handle_heartbeat(
    broker: BrokerServer, context: RequestContext, request: HeartbeatRequest
) -> Answer:
    """Keep a member in its group."""
    if not request.group_id:
        return _refuse_heartbeat(_NO_GROUP_ID)
    return broker.groups.submit(
        request.group_id,
        lambda machine, ticket: machine.classic.heartbeat(request, ticket),
        _refuse_heartbeat,
    )


def _refuse_heartbeat(error: KafkaError) -> HeartbeatResponse:
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)


def handle_leave_group(
    broker: BrokerServer, context: RequestContext, request: LeaveGroupRequest
) -> Answer | Coroutine[Any, Any, LeaveGroupResponse]:
    """Let members leave a group."""
    if not request.group_id:
        return LeaveGroupResponse(error_code=_NO_GROUP_ID.code)
    if len(request.members) > _LEAVING_AT_ONCE:
        return _leave_in_parts(broker, context, request)
    return broker.groups.submit(
        request.group_id,
        _leave(context, request),
        lambda error: _refuse_leave(context, request, error),
    )


async def _leave_in_parts(
    broker: BrokerServer, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Let members leave as if they had been named in several requests."""
    answers: list[MemberResponse] = []
    slices = Slices(broker.turns)
    for start in range(0, len(request.members), _LEAVING_AT_ONCE):
        members = request.members[start : start + _LEAVING_AT_ONCE]
        part = request.replace(members=members)
        response: LeaveGroupResponse
        try:
            response = await broker.groups.call(request.group_id, _leave(context, part))
        except KafkaError as error:
            response = _refuse_leave(context, part, error)
        if response.error_code:
            return response
        answers += response.members
        await slices.give_way()
    return LeaveGroupResponse(members=tuple(answers))


def _leave(
    context: RequestContext, request: LeaveGroupRequest
) -> Callable[[GroupCoordinator, Ticket], Effects]:
    caller = caller_of(context)
    return lambda machine, ticket: machine.classic.leave_group(request, ticket, caller)


def _refuse_leave(
    context: RequestContext, request: LeaveGroupRequest, error: KafkaError
) -> LeaveGroupResponse:
    if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=coordinator_error_code(error))
    answers = tuple(
        MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=error.code,
        )
        for member in members_leaving(request, context.version).members
    )
    return leave_response(LeaveGroupResponse(members=answers), context.version)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.JOIN_GROUP, handle_join_group, is_patient=True),
    serves(ApiKey.SYNC_GROUP, handle_sync_group, is_patient=True),
    serves(ApiKey.HEARTBEAT, handle_heartbeat),
    serves(ApiKey.LEAVE_GROUP, handle_leave_group),
)
