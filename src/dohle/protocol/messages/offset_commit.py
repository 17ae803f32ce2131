"""OffsetCommit, api key 8: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string("0+", nullable=True)


class OffsetCommitRequestTopic(Struct):
    name: TopicName = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Request, api_key=8, versions="0-10", flexible="8+"):
    group_id: GroupId = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable=True, default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: tuple[OffsetCommitRequestTopic, ...] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetCommitResponseTopic(Struct):
    name: TopicName = string("0-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = array(
        OffsetCommitResponsePartition, "0+"
    )


class OffsetCommitResponse(Response, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = array(OffsetCommitResponseTopic, "0+")
