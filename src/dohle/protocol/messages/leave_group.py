"""LeaveGroup, api key 13: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId
from dohle.protocol.fields import array, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable=True, default=None)
    reason: str | None = string("5+", nullable=True, default=None, ignorable=True)


class LeaveGroupRequest(Request, api_key=13, versions="0-5", flexible="4+"):
    group_id: GroupId = string("0+")
    member_id: str = string("0-2")
    members: tuple[MemberIdentity, ...] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable=True)
    error_code: int = int16("3+")


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: tuple[MemberResponse, ...] = array(MemberResponse, "3+")
