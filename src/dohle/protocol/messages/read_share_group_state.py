"""ReadShareGroupState, api key 84: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import array, int8, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class PartitionData(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class ReadShareGroupStateRequest(Request, api_key=84, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[ReadStateData, ...] = array(ReadStateData, "0+")


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")


class ReadStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class ReadShareGroupStateResponse(Response, api_key=84, versions="0", flexible="0+"):
    results: tuple[ReadStateResult, ...] = array(ReadStateResult, "0+")
