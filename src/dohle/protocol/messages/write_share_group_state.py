"""WriteShareGroupState, api key 85: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import array, int8, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")


class WriteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class WriteShareGroupStateRequest(Request, api_key=85, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[WriteStateData, ...] = array(WriteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)


class WriteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class WriteShareGroupStateResponse(Response, api_key=85, versions="0-1", flexible="0+"):
    results: tuple[WriteStateResult, ...] = array(WriteStateResult, "0+")
