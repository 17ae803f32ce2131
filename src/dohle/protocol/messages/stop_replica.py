"""StopReplica, api key 5: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.fields import array, boolean, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class StopReplicaPartitionV0(Struct):
    topic_name: TopicName = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Struct):
    name: TopicName = string("1-2")
    partition_indexes: tuple[int, ...] = array(int32, "1-2")


class StopReplicaPartitionState(Struct):
    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


class StopReplicaTopicState(Struct):
    topic_name: TopicName = string("3+")
    partition_states: tuple[StopReplicaPartitionState, ...] = array(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Request, api_key=5, versions="0-4", flexible="2+"):
    controller_id: BrokerId = int32("0+")
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: tuple[StopReplicaPartitionV0, ...] = array(StopReplicaPartitionV0, "0")
    topics: tuple[StopReplicaTopicV1, ...] = array(StopReplicaTopicV1, "1-2")
    topic_states: tuple[StopReplicaTopicState, ...] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Struct):
    topic_name: TopicName = string("0+")
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class StopReplicaResponse(Response, api_key=5, versions="0-4", flexible="2+"):
    error_code: int = int16("0+")
    partition_errors: tuple[StopReplicaPartitionError, ...] = array(StopReplicaPartitionError, "0+")
