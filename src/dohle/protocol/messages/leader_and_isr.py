"""LeaderAndIsr, api key 4: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class LeaderAndIsrPartitionState(Struct):
    topic_name: TopicName = string("0-1", ignorable=True)
    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")
    isr: tuple[BrokerId, ...] = array(int32, "0+")
    partition_epoch: int = int32("0+")
    replicas: tuple[BrokerId, ...] = array(int32, "0+")
    adding_replicas: tuple[BrokerId, ...] = array(int32, "3+", ignorable=True)
    removing_replicas: tuple[BrokerId, ...] = array(int32, "3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")


class LeaderAndIsrTopicState(Struct):
    topic_name: TopicName = string("2+")
    topic_id: Uuid = uuid("5+", ignorable=True)
    partition_states: tuple[LeaderAndIsrPartitionState, ...] = array(
        LeaderAndIsrPartitionState, "2+"
    )


class LeaderAndIsrLiveLeader(Struct):
    broker_id: BrokerId = int32("0+")
    host_name: str = string("0+")
    port: int = int32("0+")


class LeaderAndIsrRequest(Request, api_key=4, versions="0-7", flexible="4+"):
    controller_id: BrokerId = int32("0+")
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+")
    ungrouped_partition_states: tuple[LeaderAndIsrPartitionState, ...] = array(
        LeaderAndIsrPartitionState, "0-1"
    )
    topic_states: tuple[LeaderAndIsrTopicState, ...] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = array(LeaderAndIsrLiveLeader, "0+")


class LeaderAndIsrPartitionError(Struct):
    topic_name: TopicName = string("0-4", ignorable=True)
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = uuid("5+")
    partition_errors: tuple[LeaderAndIsrPartitionError, ...] = array(
        LeaderAndIsrPartitionError, "5+"
    )


class LeaderAndIsrResponse(Response, api_key=4, versions="0-7", flexible="4+"):
    error_code: int = int16("0+")
    partition_errors: tuple[LeaderAndIsrPartitionError, ...] = array(
        LeaderAndIsrPartitionError, "0-4"
    )
    topics: tuple[LeaderAndIsrTopicError, ...] = array(LeaderAndIsrTopicError, "5+")
