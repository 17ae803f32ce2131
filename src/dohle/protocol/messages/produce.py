"""Produce, api key 0: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, TransactionalId, Uuid
from dohle.protocol.fields import array, int16, int32, int64, record_data, string, struct, uuid
from dohle.protocol.schema import Records, Request, Response, Struct


class PartitionProduceData(Struct):
    index: int = int32("0+")
    records: Records | None = record_data("0+", nullable=True)


class TopicProduceData(Struct):
    name: TopicName = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = array(PartitionProduceData, "0+")


class ProduceRequest(Request, api_key=0, versions="0-13", flexible="9+"):
    transactional_id: TransactionalId | None = string("3+", nullable=True, default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: tuple[TopicProduceData, ...] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable=True, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = string("8+", nullable=True, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: TopicName = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = array(
        PartitionProduceResponse, "0+"
    )


class NodeEndpoint(Struct):
    node_id: BrokerId = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable=True, default=None)


class ProduceResponse(Response, api_key=0, versions="0-13", flexible="9+"):
    responses: tuple[TopicProduceResponse, ...] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "10+", tag=0)
