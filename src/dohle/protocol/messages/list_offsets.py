"""ListOffsets, api key 2: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.fields import array, int8, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[ListOffsetsPartition, ...] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Request, api_key=2, versions="0-11", flexible="6+"):
    replica_id: BrokerId = int32("0+")
    isolation_level: int = int8("2+")
    topics: tuple[ListOffsetsTopic, ...] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    old_style_offsets: tuple[int, ...] = array(int64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: TopicName = string("0+")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Response, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = array(ListOffsetsTopicResponse, "0+")
