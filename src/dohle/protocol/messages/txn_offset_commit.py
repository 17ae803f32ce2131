"""TxnOffsetCommit, api key 28: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, ProducerId, TopicName, TransactionalId
from dohle.protocol.fields import array, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable=True)


class TxnOffsetCommitRequestTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = array(
        TxnOffsetCommitRequestPartition, "0+"
    )


class TxnOffsetCommitRequest(Request, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: TransactionalId = string("0+")
    group_id: GroupId = string("0+")
    producer_id: ProducerId = int64("0+")
    producer_epoch: int = int16("0+")
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable=True, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = array(TxnOffsetCommitRequestTopic, "0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = array(
        TxnOffsetCommitResponsePartition, "0+"
    )


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = array(TxnOffsetCommitResponseTopic, "0+")
