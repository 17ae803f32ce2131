"""DeleteShareGroupState, api key 86: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import array, int16, int32, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class PartitionData(Struct):
    partition: int = int32("0+")


class DeleteStateData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Request, api_key=86, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[DeleteStateData, ...] = array(DeleteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Response, api_key=86, versions="0", flexible="0+"):
    results: tuple[DeleteStateResult, ...] = array(DeleteStateResult, "0+")
