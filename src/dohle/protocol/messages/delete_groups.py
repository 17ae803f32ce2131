"""DeleteGroups, api key 42: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId
from dohle.protocol.fields import array, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class DeleteGroupsRequest(Request, api_key=42, versions="0-2", flexible="2+"):
    groups_names: tuple[GroupId, ...] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: GroupId = string("0+")
    error_code: int = int16("0+")


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: tuple[DeletableGroupResult, ...] = array(DeletableGroupResult, "0+")
