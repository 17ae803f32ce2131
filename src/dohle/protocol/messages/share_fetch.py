"""ShareFetch, api key 78: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, GroupId, Uuid
from dohle.protocol.fields import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uuid,
)
from dohle.protocol.schema import Records, Request, Response, Struct


class AcknowledgementBatch(Struct):
    first_offset: int = int64("1+")
    last_offset: int = int64("1+")
    acknowledge_types: tuple[int, ...] = array(int8, "1+")


class FetchPartition(Struct):
    partition_index: int = int32("1+")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = array(AcknowledgementBatch, "1+")


class FetchTopic(Struct):
    topic_id: Uuid = uuid("1+")
    partitions: tuple[FetchPartition, ...] = array(FetchPartition, "1+")


class ForgottenTopic(Struct):
    topic_id: Uuid = uuid("1+")
    partitions: tuple[int, ...] = array(int32, "1+")


class ShareFetchRequest(Request, api_key=78, versions="1-2", flexible="1+"):
    group_id: GroupId | None = string("1+", nullable=True, default=None)
    member_id: str | None = string("1+", nullable=True)
    share_session_epoch: int = int32("1+")
    max_wait_ms: int = int32("1+")
    min_bytes: int = int32("1+")
    max_bytes: int = int32("1+", default=2147483647)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: tuple[FetchTopic, ...] = array(FetchTopic, "1+")
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array(ForgottenTopic, "1+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("1+")
    leader_epoch: int = int32("1+")


class AcquiredRecords(Struct):
    first_offset: int = int64("1+")
    last_offset: int = int64("1+")
    delivery_count: int = int16("1+")


class PartitionData(Struct):
    partition_index: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable=True, default=None)
    acknowledge_error_code: int = int16("1+")
    acknowledge_error_message: str | None = string("1+", nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "1+")
    records: Records | None = record_data("1+")
    acquired_records: tuple[AcquiredRecords, ...] = array(AcquiredRecords, "1+")


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = uuid("1+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "1+")


class NodeEndpoint(Struct):
    node_id: BrokerId = int32("1+")
    host: str = string("1+")
    port: int = int32("1+")
    rack: str | None = string("1+", nullable=True, default=None)


class ShareFetchResponse(Response, api_key=78, versions="1-2", flexible="1+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable=True, default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: tuple[ShareFetchableTopicResponse, ...] = array(ShareFetchableTopicResponse, "1+")
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+")
