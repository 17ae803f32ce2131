"""DescribeQuorum, api key 55: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, int64, string, uint16, uuid
from dohle.protocol.schema import Request, Response, Struct


class DescribeQuorumRequestPartitionData(Struct):
    partition_index: int = int32("0+")


class DescribeQuorumRequestTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[DescribeQuorumRequestPartitionData, ...] = array(
        DescribeQuorumRequestPartitionData, "0+"
    )


class DescribeQuorumRequest(Request, api_key=55, versions="0-2", flexible="0+"):
    topics: tuple[DescribeQuorumRequestTopicData, ...] = array(DescribeQuorumRequestTopicData, "0+")


class ReplicaState(Struct):
    replica_id: BrokerId = int32("0+")
    replica_directory_id: Uuid = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable=True, ignorable=True)
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: tuple[ReplicaState, ...] = array(ReplicaState, "0+")
    observers: tuple[ReplicaState, ...] = array(ReplicaState, "0+")


class DescribeQuorumResponseTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[DescribeQuorumResponsePartitionData, ...] = array(
        DescribeQuorumResponsePartitionData, "0+"
    )


class Listener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: BrokerId = int32("2+")
    listeners: tuple[Listener, ...] = array(Listener, "2+")


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable=True, ignorable=True)
    topics: tuple[DescribeQuorumResponseTopicData, ...] = array(
        DescribeQuorumResponseTopicData, "0+"
    )
    nodes: tuple[Node, ...] = array(Node, "2+")
