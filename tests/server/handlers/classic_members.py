"""Members of a classic group, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dohle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.server.wire import Wire

GROUP = GroupId("g")
NONE = ErrorCode.NONE


def join_request(member_id: str = "", session_ms: int = 60_000, **more: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"meta"),),
        **more,
    )


async def join(wire: Wire, member_id: str = "", version: int = 9, **more: Any) -> JoinGroupResponse:
    answer = await wire.send(join_request(member_id, **more), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await wire.send(join_request(answer.member_id, **more), version)
    assert isinstance(answer, JoinGroupResponse)
    return answer


def sync_request(
    joined: JoinGroupResponse, assignments: Sequence[tuple[str, bytes]] = ()
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name=joined.protocol_name,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=assigned)
            for member, assigned in assignments
        ),
    )


async def stable(wire: Wire, version: int = 9, **more: Any) -> JoinGroupResponse:
    """Let one member be the group."""
    joined = await join(wire, version=version, **more)
    assert joined.error_code == NONE
    answer = await wire.send(sync_request(joined, [(joined.member_id, b"all")]))
    assert (answer.error_code, answer.assignment) == (NONE, b"all")
    return joined
