"""AlterPartition, api key 56: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, int8, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class BrokerState(Struct):
    broker_id: BrokerId = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class AlterPartitionRequestPartitionData(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: tuple[BrokerId, ...] = array(int32, "0-2")
    new_isr_with_epochs: tuple[BrokerState, ...] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class AlterPartitionRequestTopicData(Struct):
    topic_name: TopicName = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: tuple[AlterPartitionRequestPartitionData, ...] = array(
        AlterPartitionRequestPartitionData, "0+"
    )


class AlterPartitionRequest(Request, api_key=56, versions="0-3", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: tuple[AlterPartitionRequestTopicData, ...] = array(AlterPartitionRequestTopicData, "0+")


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")
    isr: tuple[BrokerId, ...] = array(int32, "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class AlterPartitionResponseTopicData(Struct):
    topic_name: TopicName = string("0-1", ignorable=True)
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: tuple[AlterPartitionResponsePartitionData, ...] = array(
        AlterPartitionResponsePartitionData, "0+"
    )


class AlterPartitionResponse(Response, api_key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: tuple[AlterPartitionResponseTopicData, ...] = array(
        AlterPartitionResponseTopicData, "0+"
    )
