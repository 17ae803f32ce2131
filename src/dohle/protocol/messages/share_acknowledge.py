"""ShareAcknowledge, api key 79: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, GroupId, Uuid
from dohle.protocol.fields import array, boolean, int8, int16, int32, int64, string, struct, uuid
from dohle.protocol.schema import Request, Response, Struct


class AcknowledgementBatch(Struct):
    first_offset: int = int64("1+")
    last_offset: int = int64("1+")
    acknowledge_types: tuple[int, ...] = array(int8, "1+")


class AcknowledgePartition(Struct):
    partition_index: int = int32("1+")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(AcknowledgementBatch, "1+")


class AcknowledgeTopic(Struct):
    topic_id: Uuid = uuid("1+")
    partitions: tuple[AcknowledgePartition, ...] = array(AcknowledgePartition, "1+")


class ShareAcknowledgeRequest(Request, api_key=79, versions="1-2", flexible="1+"):
    group_id: GroupId | None = string("1+", nullable=True, default=None)
    member_id: str | None = string("1+", nullable=True)
    share_session_epoch: int = int32("1+")
    is_renew_ack: bool = boolean("2+")
    topics: tuple[AcknowledgeTopic, ...] = array(AcknowledgeTopic, "1+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("1+")
    leader_epoch: int = int32("1+")


class PartitionData(Struct):
    partition_index: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "1+")


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = uuid("1+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "1+")


class NodeEndpoint(Struct):
    node_id: BrokerId = int32("1+")
    host: str = string("1+")
    port: int = int32("1+")
    rack: str | None = string("1+", nullable=True, default=None)


class ShareAcknowledgeResponse(Response, api_key=79, versions="1-2", flexible="1+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable=True, default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = array(
        ShareAcknowledgeTopicResponse, "1+"
    )
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+")
