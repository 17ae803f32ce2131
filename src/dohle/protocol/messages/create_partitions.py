"""CreatePartitions, api key 37: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.fields import array, boolean, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: tuple[BrokerId, ...] = array(int32, "0+")


class CreatePartitionsTopic(Struct):
    name: TopicName = string("0+")
    count: int = int32("0+")
    assignments: tuple[CreatePartitionsAssignment, ...] | None = array(
        CreatePartitionsAssignment, "0+", nullable=True
    )


class CreatePartitionsRequest(Request, api_key=37, versions="0-3", flexible="2+"):
    topics: tuple[CreatePartitionsTopic, ...] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


class CreatePartitionsTopicResult(Struct):
    name: TopicName = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: tuple[CreatePartitionsTopicResult, ...] = array(CreatePartitionsTopicResult, "0+")
