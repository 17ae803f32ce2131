"""Records of the group coordinator: share groups.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import array, int8, int32, int64, string, uuid
from dohle.protocol.schema import CoordinatorKey, CoordinatorValue, Struct


class ShareGroupMemberMetadataKey(CoordinatorKey, record_type=10, versions="0", flexible="none"):
    group_id: str = string("0+")
    member_id: str = string("0+")


class ShareGroupMemberMetadataValue(CoordinatorValue, record_type=10, versions="0", flexible="0+"):
    rack_id: str | None = string("0+", nullable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: tuple[str, ...] = array(string, "0+")


class ShareGroupMetadataKey(CoordinatorKey, record_type=11, versions="0", flexible="none"):
    group_id: str = string("0+")


class ShareGroupMetadataValue(CoordinatorValue, record_type=11, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")


class ShareGroupTargetAssignmentMetadataKey(
    CoordinatorKey, record_type=12, versions="0", flexible="none"
):
    group_id: str = string("0+")


class ShareGroupTargetAssignmentMetadataValue(
    CoordinatorValue, record_type=12, versions="0", flexible="0+"
):
    assignment_epoch: int = int32("0+")


class ShareGroupTargetAssignmentMemberKey(
    CoordinatorKey, record_type=13, versions="0", flexible="none"
):
    group_id: str = string("0+")
    member_id: str = string("0+")


class TopicPartition(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ShareGroupTargetAssignmentMemberValue(
    CoordinatorValue, record_type=13, versions="0", flexible="0+"
):
    topic_partitions: tuple[TopicPartition, ...] = array(TopicPartition, "0+")


class ShareGroupCurrentMemberAssignmentKey(
    CoordinatorKey, record_type=14, versions="0", flexible="none"
):
    group_id: str = string("0+")
    member_id: str = string("0+")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class ShareGroupCurrentMemberAssignmentValue(
    CoordinatorValue, record_type=14, versions="0", flexible="0+"
):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: tuple[TopicPartitions, ...] = array(TopicPartitions, "0+")


class ShareGroupStatePartitionMetadataKey(
    CoordinatorKey, record_type=15, versions="0", flexible="none"
):
    group_id: str = string("0+")


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class TopicInfo(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")


class ShareGroupStatePartitionMetadataValue(
    CoordinatorValue, record_type=15, versions="0", flexible="0+"
):
    initializing_topics: tuple[TopicPartitionsInfo, ...] = array(TopicPartitionsInfo, "0+")
    initialized_topics: tuple[TopicPartitionsInfo, ...] = array(TopicPartitionsInfo, "0+")
    deleting_topics: tuple[TopicInfo, ...] = array(TopicInfo, "0+")
