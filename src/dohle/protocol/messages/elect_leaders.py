"""ElectLeaders, api key 43: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.fields import array, int8, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class TopicPartitions(Struct):
    topic: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ElectLeadersRequest(Request, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+")
    topic_partitions: tuple[TopicPartitions, ...] | None = array(
        TopicPartitions, "0+", nullable=True
    )
    timeout_ms: int = int32("0+", default=60000)


class PartitionResult(Struct):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True)


class ReplicaElectionResult(Struct):
    topic: TopicName = string("0+")
    partition_result: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class ElectLeadersResponse(Response, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: tuple[ReplicaElectionResult, ...] = array(ReplicaElectionResult, "0+")
