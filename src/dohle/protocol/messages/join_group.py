"""JoinGroup, api key 11: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId
from dohle.protocol.fields import array, binary, boolean, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = binary("0+")


class JoinGroupRequest(Request, api_key=11, versions="0-9", flexible="6+"):
    group_id: GroupId = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable=True, default=None)
    protocol_type: str = string("0+")
    protocols: tuple[JoinGroupRequestProtocol, ...] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable=True, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable=True, default=None, ignorable=True)
    metadata: bytes = binary("0+")


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: tuple[JoinGroupResponseMember, ...] = array(JoinGroupResponseMember, "0+")
