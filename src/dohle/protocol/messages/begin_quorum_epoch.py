"""BeginQuorumEpoch, api key 53: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, string, uint16, uuid
from dohle.protocol.schema import Request, Response, Struct


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: int = int32("0+")
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[BeginQuorumEpochRequestPartitionData, ...] = array(
        BeginQuorumEpochRequestPartitionData, "0+"
    )


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(Request, api_key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable=True, default=None)
    voter_id: BrokerId = int32("1+", default=-1, ignorable=True)
    topics: tuple[BeginQuorumEpochRequestTopicData, ...] = array(
        BeginQuorumEpochRequestTopicData, "0+"
    )
    leader_endpoints: tuple[LeaderEndpoint, ...] = array(LeaderEndpoint, "1+", ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[BeginQuorumEpochResponsePartitionData, ...] = array(
        BeginQuorumEpochResponsePartitionData, "0+"
    )


class NodeEndpoint(Struct):
    node_id: BrokerId = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochResponse(Response, api_key=53, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: tuple[BeginQuorumEpochResponseTopicData, ...] = array(
        BeginQuorumEpochResponseTopicData, "0+"
    )
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
