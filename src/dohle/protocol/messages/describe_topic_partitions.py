"""DescribeTopicPartitions, api key 75: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, boolean, int16, int32, string, struct, uuid
from dohle.protocol.schema import Request, Response, Struct


class TopicRequest(Struct):
    name: TopicName = string("0+")


class Cursor(Struct):
    topic_name: TopicName = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Request, api_key=75, versions="0", flexible="0+"):
    topics: tuple[TopicRequest, ...] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct(Cursor, "0+", nullable=True, default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    replica_nodes: tuple[BrokerId, ...] = array(int32, "0+")
    isr_nodes: tuple[BrokerId, ...] = array(int32, "0+")
    eligible_leader_replicas: tuple[BrokerId, ...] | None = array(
        int32, "0+", nullable=True, default=None
    )
    last_known_elr: tuple[BrokerId, ...] | None = array(int32, "0+", nullable=True, default=None)
    offline_replicas: tuple[BrokerId, ...] = array(int32, "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16("0+")
    name: TopicName | None = string("0+", nullable=True)
    topic_id: Uuid = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", ignorable=True)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = array(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    topic_authorized_operations: int = int32("0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = array(
        DescribeTopicPartitionsResponseTopic, "0+"
    )
    next_cursor: Cursor | None = struct(Cursor, "0+", nullable=True, default=None)
