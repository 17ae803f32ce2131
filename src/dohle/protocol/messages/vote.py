"""Vote, api key 52: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, boolean, int16, int32, int64, string, uint16, uuid
from dohle.protocol.schema import Request, Response, Struct


class VoteRequestPartitionData(Struct):
    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: BrokerId = int32("0+")
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class VoteRequestTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[VoteRequestPartitionData, ...] = array(VoteRequestPartitionData, "0+")


class VoteRequest(Request, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = string("0+", nullable=True, default=None)
    voter_id: BrokerId = int32("1+", default=-1, ignorable=True)
    topics: tuple[VoteRequestTopicData, ...] = array(VoteRequestTopicData, "0+")


class VoteResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")
    vote_granted: bool = boolean("0+")


class VoteResponseTopicData(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[VoteResponsePartitionData, ...] = array(VoteResponsePartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: BrokerId = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VoteResponse(Response, api_key=52, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    topics: tuple[VoteResponseTopicData, ...] = array(VoteResponseTopicData, "0+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
