"""DescribeShareGroupOffsets, api key 90: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: GroupId = string("0+")
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable=True
    )


class DescribeShareGroupOffsetsRequest(Request, api_key=90, versions="0-1", flexible="0+"):
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = array(
        DescribeShareGroupOffsetsRequestGroup, "0+"
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: TopicName = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: GroupId = string("0+")
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = array(
        DescribeShareGroupOffsetsResponseTopic, "0+"
    )
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)


class DescribeShareGroupOffsetsResponse(Response, api_key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...] = array(
        DescribeShareGroupOffsetsResponseGroup, "0+"
    )
