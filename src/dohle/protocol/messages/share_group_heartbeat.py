"""ShareGroupHeartbeat, api key 76: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, int16, int32, string, struct, uuid
from dohle.protocol.schema import Request, Response, Struct


class ShareGroupHeartbeatRequest(Request, api_key=76, versions="1", flexible="1+"):
    group_id: GroupId = string("1+")
    member_id: str = string("1+")
    member_epoch: int = int32("1+")
    rack_id: str | None = string("1+", nullable=True, default=None)
    subscribed_topic_names: tuple[TopicName, ...] | None = array(
        string, "1+", nullable=True, default=None
    )


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("1+")
    partitions: tuple[int, ...] = array(int32, "1+")


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "1+")


class ShareGroupHeartbeatResponse(Response, api_key=76, versions="1", flexible="1+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable=True, default=None)
    member_id: str | None = string("1+", nullable=True, default=None)
    member_epoch: int = int32("1+")
    heartbeat_interval_ms: int = int32("1+")
    assignment: Assignment | None = struct(Assignment, "1+", nullable=True, default=None)
