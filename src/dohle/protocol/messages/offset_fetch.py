"""OffsetFetch, api key 9: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class OffsetFetchRequestTopic(Struct):
    name: TopicName = string("0-7")
    partition_indexes: tuple[int, ...] = array(int32, "0-7")


class OffsetFetchRequestTopics(Struct):
    name: TopicName = string("8-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partition_indexes: tuple[int, ...] = array(int32, "8+")


class OffsetFetchRequestGroup(Struct):
    group_id: GroupId = string("8+")
    member_id: str | None = string("9+", nullable=True, default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = array(
        OffsetFetchRequestTopics, "8+", nullable=True
    )


class OffsetFetchRequest(Request, api_key=9, versions="0-10", flexible="6+"):
    group_id: GroupId = string("0-7")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable=True)
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Struct):
    name: TopicName = string("0-7")
    partitions: tuple[OffsetFetchResponsePartition, ...] = array(
        OffsetFetchResponsePartition, "0-7"
    )


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable=True)
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Struct):
    name: TopicName = string("8-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = array(
        OffsetFetchResponsePartitions, "8+"
    )


class OffsetFetchResponseGroup(Struct):
    group_id: GroupId = string("8+")
    topics: tuple[OffsetFetchResponseTopics, ...] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


class OffsetFetchResponse(Response, api_key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = array(OffsetFetchResponseGroup, "8+")
