"""OffsetDelete, api key 47: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName
from dohle.protocol.fields import array, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32("0+")


class OffsetDeleteRequestTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = array(OffsetDeleteRequestPartition, "0+")


class OffsetDeleteRequest(Request, api_key=47, versions="0", flexible="none"):
    group_id: GroupId = string("0+")
    topics: tuple[OffsetDeleteRequestTopic, ...] = array(OffsetDeleteRequestTopic, "0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetDeleteResponseTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = array(
        OffsetDeleteResponsePartition, "0+"
    )


class OffsetDeleteResponse(Response, api_key=47, versions="0", flexible="none"):
    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: tuple[OffsetDeleteResponseTopic, ...] = array(OffsetDeleteResponseTopic, "0+")
