"""The records of a consumer group, as Kafka writes them. A tombstone deletes what its key names."""

from __future__ import annotations

from dohle.groups.assignors.assignment import Assignment
from dohle.groups.consumer.member import ConsumerMember
from dohle.groups.consumer.resolved_regex import ResolvedRegex
from dohle.protocol.messages.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from dohle.protocol.record_framing import CoordinatorRecord

_VERSION = 0


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Set the group's epoch."""
    key = ConsumerGroupMetadataKey(group_id=group_id)
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(key, value, _VERSION)


def group_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """Delete the group."""
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id))


def subscription_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Delete the topics' metadata of releases before 4.1, which the hash has replaced."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id))


def member_record(
    group_id: str, member: ConsumerMember, sorted_names: tuple[str, ...] | None = None
) -> CoordinatorRecord:
    """Store what a member reported; ``sorted_names`` are its topics, if they are sorted already."""
    names = member.subscribed_topic_names
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(names)) if sorted_names is None else sorted_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return CoordinatorRecord(key, value, _VERSION)


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Delete a member."""
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def target_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """Store the group epoch of the target assignment."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return CoordinatorRecord(key, value, _VERSION)


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """Delete the epoch of the target assignment."""
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Store a member's target assignment."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    topics = tuple(
        TopicPartition(topic_id=topic_id, partitions=tuple(sorted(partitions)))
        for topic_id, partitions in target.items()
    )
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)
    return CoordinatorRecord(key, value, _VERSION)


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Delete a member's target."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Store a member's current assignment, and what it has to give back."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    return CoordinatorRecord(key, value, _VERSION)


def current_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Delete a member's current assignment."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Delete everything about a member."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Store the topics that a regular expression matches."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    value = ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(resolved.topics)),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    return CoordinatorRecord(key, value, _VERSION)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Delete a regular expression without subscribers."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord(key)


def _topic_partitions(assignment: Assignment) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
        for topic_id, partitions in assignment.items()
    )
