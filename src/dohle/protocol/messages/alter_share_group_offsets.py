"""AlterShareGroupOffsets, api key 91: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...] = array(
        AlterShareGroupOffsetsRequestPartition, "0+"
    )


class AlterShareGroupOffsetsRequest(Request, api_key=91, versions="0", flexible="0+"):
    group_id: GroupId = string("0+")
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...] = array(
        AlterShareGroupOffsetsRequestTopic, "0+"
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: TopicName = string("0+")
    topic_id: Uuid = uuid("0+")
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...] = array(
        AlterShareGroupOffsetsResponsePartition, "0+"
    )


class AlterShareGroupOffsetsResponse(Response, api_key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = array(
        AlterShareGroupOffsetsResponseTopic, "0+"
    )
