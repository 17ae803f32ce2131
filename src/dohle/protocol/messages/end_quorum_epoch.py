"""EndQuorumEpoch, api key 54: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, string, uint16, uuid
from dohle.protocol.schema import Request, Response, Struct


class ReplicaInfo(Struct):
    candidate_id: BrokerId = int32("1+")
    candidate_directory_id: Uuid = uuid("1+")


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: int = int32("0+")
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: tuple[int, ...] = array(int32, "0", ignorable=True)
    preferred_candidates: tuple[ReplicaInfo, ...] = array(ReplicaInfo, "1+", ignorable=True)


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[EndQuorumEpochRequestPartitionData, ...] = array(
        EndQuorumEpochRequestPartitionData, "0+"
    )


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(Request, api_key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable=True, default=None)
    topics: tuple[EndQuorumEpochRequestTopicData, ...] = array(EndQuorumEpochRequestTopicData, "0+")
    leader_endpoints: tuple[LeaderEndpoint, ...] = array(LeaderEndpoint, "1+", ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[EndQuorumEpochResponsePartitionData, ...] = array(
        EndQuorumEpochResponsePartitionData, "0+"
    )


class NodeEndpoint(Struct):
    node_id: BrokerId = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochResponse(Response, api_key=54, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: tuple[EndQuorumEpochResponseTopicData, ...] = array(
        EndQuorumEpochResponseTopicData, "0+"
    )
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
