"""AlterPartitionReassignments, api key 45: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.fields import array, boolean, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    replicas: tuple[BrokerId, ...] | None = array(int32, "0+", nullable=True, default=None)


class ReassignableTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[ReassignablePartition, ...] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Request, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: tuple[ReassignableTopic, ...] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)


class ReassignableTopicResponse(Struct):
    name: TopicName = string("0+")
    partitions: tuple[ReassignablePartitionResponse, ...] = array(
        ReassignablePartitionResponse, "0+"
    )


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    responses: tuple[ReassignableTopicResponse, ...] = array(ReassignableTopicResponse, "0+")
