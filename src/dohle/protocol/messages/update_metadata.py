"""UpdateMetadata, api key 6: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, boolean, int8, int16, int32, int64, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class UpdateMetadataPartitionState(Struct):
    topic_name: TopicName = string("0-4", ignorable=True)
    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")
    isr: tuple[BrokerId, ...] = array(int32, "0+")
    zk_version: int = int32("0+")
    replicas: tuple[BrokerId, ...] = array(int32, "0+")
    offline_replicas: tuple[BrokerId, ...] = array(int32, "4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: TopicName = string("5+")
    topic_id: Uuid = uuid("7+", ignorable=True)
    partition_states: tuple[UpdateMetadataPartitionState, ...] = array(
        UpdateMetadataPartitionState, "5+"
    )


class UpdateMetadataEndpoint(Struct):
    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Struct):
    id: BrokerId = int32("0+")
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: tuple[UpdateMetadataEndpoint, ...] = array(
        UpdateMetadataEndpoint, "1+", ignorable=True
    )
    rack: str | None = string("2+", nullable=True, ignorable=True)


class UpdateMetadataRequest(Request, api_key=6, versions="0-8", flexible="6+"):
    controller_id: BrokerId = int32("0+")
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0)
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: tuple[UpdateMetadataPartitionState, ...] = array(
        UpdateMetadataPartitionState, "0-4"
    )
    topic_states: tuple[UpdateMetadataTopicState, ...] = array(UpdateMetadataTopicState, "5+")
    live_brokers: tuple[UpdateMetadataBroker, ...] = array(UpdateMetadataBroker, "0+")


class UpdateMetadataResponse(Response, api_key=6, versions="0-8", flexible="6+"):
    error_code: int = int16("0+")
