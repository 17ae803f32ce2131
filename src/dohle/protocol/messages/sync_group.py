"""SyncGroup, api key 14: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId
from dohle.protocol.fields import array, binary, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = binary("0+")


class SyncGroupRequest(Request, api_key=14, versions="0-5", flexible="4+"):
    group_id: GroupId = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable=True, default=None)
    protocol_type: str | None = string("5+", nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable=True, default=None, ignorable=True)
    assignments: tuple[SyncGroupRequestAssignment, ...] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable=True, default=None, ignorable=True)
    assignment: bytes = binary("0+")
