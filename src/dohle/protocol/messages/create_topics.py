"""CreateTopics, api key 19: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import array, boolean, int8, int16, int32, string, uuid
from dohle.protocol.schema import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32("0+")
    broker_ids: tuple[BrokerId, ...] = array(int32, "0+")


class CreatableTopicConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable=True)


class CreatableTopic(Struct):
    name: TopicName = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: tuple[CreatableReplicaAssignment, ...] = array(CreatableReplicaAssignment, "0+")
    configs: tuple[CreatableTopicConfig, ...] = array(CreatableTopicConfig, "0+")


class CreateTopicsRequest(Request, api_key=19, versions="0-7", flexible="5+"):
    topics: tuple[CreatableTopic, ...] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Struct):
    name: str = string("5+")
    value: str | None = string("5+", nullable=True)
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    name: TopicName = string("0+")
    topic_id: Uuid = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable=True, ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = array(
        CreatableTopicConfigs, "5+", nullable=True, ignorable=True
    )


class CreateTopicsResponse(Response, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = array(CreatableTopicResult, "0+")
