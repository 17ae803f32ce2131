"""ControlledShutdown, api key 7: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.fields import array, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class ControlledShutdownRequest(Request, api_key=7, versions="0-3", flexible="3+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: TopicName = string("0+")
    partition_index: int = int32("0+")


class ControlledShutdownResponse(Response, api_key=7, versions="0-3", flexible="3+"):
    error_code: int = int16("0+")
    remaining_partitions: tuple[RemainingPartition, ...] = array(RemainingPartition, "0+")
