"""ListGroups, api key 16: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId
from dohle.protocol.fields import array, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class ListGroupsRequest(Request, api_key=16, versions="0-5", flexible="3+"):
    states_filter: tuple[str, ...] = array(string, "4+")
    types_filter: tuple[str, ...] = array(string, "5+")


class ListedGroup(Struct):
    group_id: GroupId = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: tuple[ListedGroup, ...] = array(ListedGroup, "0+")
