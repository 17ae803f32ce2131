"""ConsumerGroupHeartbeat, api key 68: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, string, struct, uuid
from dohle.protocol.schema import Request, Response, Struct


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions="0-1", flexible="0+"):
    group_id: GroupId = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable=True, default=None)
    rack_id: str | None = string("0+", nullable=True, default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: tuple[TopicName, ...] | None = array(
        string, "0+", nullable=True, default=None
    )
    subscribed_topic_regex: str | None = string("1+", nullable=True, default=None)
    server_assignor: str | None = string("0+", nullable=True, default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = array(
        TopicPartitions, "0+", nullable=True, default=None
    )


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable=True, default=None)
    member_id: str | None = string("0+", nullable=True, default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable=True, default=None)
