"""ShareGroupDescribe, api key 77: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.fields import array, boolean, int16, int32, string, struct, uuid
from dohle.protocol.schema import Request, Response, Struct


class ShareGroupDescribeRequest(Request, api_key=77, versions="1", flexible="1+"):
    group_ids: tuple[GroupId, ...] = array(string, "1+")
    include_authorized_operations: bool = boolean("1+")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("1+")
    topic_name: TopicName = string("1+")
    partitions: tuple[int, ...] = array(int32, "1+")


class Assignment(Struct):
    topic_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "1+")


class Member(Struct):
    member_id: str = string("1+")
    rack_id: str | None = string("1+", nullable=True, default=None)
    member_epoch: int = int32("1+")
    client_id: str = string("1+")
    client_host: str = string("1+")
    subscribed_topic_names: tuple[TopicName, ...] = array(string, "1+")
    assignment: Assignment = struct(Assignment, "1+")


class DescribedGroup(Struct):
    error_code: int = int16("1+")
    error_message: str | None = string("1+", nullable=True, default=None)
    group_id: GroupId = string("1+")
    group_state: str = string("1+")
    group_epoch: int = int32("1+")
    assignment_epoch: int = int32("1+")
    assignor_name: str = string("1+")
    members: tuple[Member, ...] = array(Member, "1+")
    authorized_operations: int = int32("1+", default=-2147483648)


class ShareGroupDescribeResponse(Response, api_key=77, versions="1", flexible="1+"):
    throttle_time_ms: int = int32("1+")
    groups: tuple[DescribedGroup, ...] = array(DescribedGroup, "1+")
