"""ListPartitionReassignments, api key 46: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.fields import array, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class ListPartitionReassignmentsTopics(Struct):
    name: TopicName = string("0+")
    partition_indexes: tuple[int, ...] = array(int32, "0+")


class ListPartitionReassignmentsRequest(Request, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable=True, default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32("0+")
    replicas: tuple[BrokerId, ...] = array(int32, "0+")
    adding_replicas: tuple[BrokerId, ...] = array(int32, "0+")
    removing_replicas: tuple[BrokerId, ...] = array(int32, "0+")


class OngoingTopicReassignment(Struct):
    name: TopicName = string("0+")
    partitions: tuple[OngoingPartitionReassignment, ...] = array(OngoingPartitionReassignment, "0+")


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)
    topics: tuple[OngoingTopicReassignment, ...] = array(OngoingTopicReassignment, "0+")
