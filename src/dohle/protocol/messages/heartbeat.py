"""Heartbeat, api key 12: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId
from dohle.protocol.fields import int16, int32, string
from dohle.protocol.schema import Request, Response


class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
    group_id: GroupId = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable=True, default=None)


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
