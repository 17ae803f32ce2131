"""Replays the records of consumer groups: the only way in which a group changes durably.

A compacted log may begin anywhere in a group's life, so nothing is assumed about what came before:
a value creates what it needs, and a tombstone of something that does not exist is ignored.
"""

from __future__ import annotations

from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import ConsumerMember, assignment_of
from dohle.groups.consumer.resolved_regex import ResolvedRegex
from dohle.groups.group import Group
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
)
from dohle.protocol.record_framing import CoordinatorRecord

RECORD_TYPES = frozenset(
    {
        ConsumerGroupMetadataKey.RECORD_TYPE,
        ConsumerGroupPartitionMetadataKey.RECORD_TYPE,
        ConsumerGroupMemberMetadataKey.RECORD_TYPE,
        ConsumerGroupTargetAssignmentMetadataKey.RECORD_TYPE,
        ConsumerGroupTargetAssignmentMemberKey.RECORD_TYPE,
        ConsumerGroupCurrentMemberAssignmentKey.RECORD_TYPE,
        ConsumerGroupRegularExpressionKey.RECORD_TYPE,
    }
)
_NO_EPOCH = -1


def replay_record(groups: dict[str, Group], record: CoordinatorRecord) -> None:
    """Apply a record of one of :data:`RECORD_TYPES`."""
    key, value = record.key, record.value
    assert isinstance(
        key,
        ConsumerGroupMetadataKey
        | ConsumerGroupPartitionMetadataKey
        | ConsumerGroupMemberMetadataKey
        | ConsumerGroupTargetAssignmentMetadataKey
        | ConsumerGroupTargetAssignmentMemberKey
        | ConsumerGroupCurrentMemberAssignmentKey
        | ConsumerGroupRegularExpressionKey,
    )
    group = groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        # The existing group was created by an offset commit before this group was known.
        group = groups[key.group_id] = ConsumerGroup(key.group_id)
    if value is not None:
        _replay_value(group, record)
    elif isinstance(key, ConsumerGroupMetadataKey):
        del groups[key.group_id]
    else:
        _replay_tombstone(group, record)


def _replay_value(group: ConsumerGroup, record: CoordinatorRecord) -> None:
    key, value = record.key, record.value
    match value:
        case ConsumerGroupMetadataValue():
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        case ConsumerGroupMemberMetadataValue():
            assert isinstance(key, ConsumerGroupMemberMetadataKey)
            group.update_member(_member(group, key.member_id).with_metadata(value))
        case ConsumerGroupTargetAssignmentMetadataValue():
            group.target_epoch = value.assignment_epoch
        case ConsumerGroupTargetAssignmentMemberValue():
            assert isinstance(key, ConsumerGroupTargetAssignmentMemberKey)
            group.set_target(key.member_id, assignment_of(value.topic_partitions))
        case ConsumerGroupCurrentMemberAssignmentValue():
            assert isinstance(key, ConsumerGroupCurrentMemberAssignmentKey)
            group.update_member(_member(group, key.member_id).with_current_assignment(value))
        case ConsumerGroupRegularExpressionValue():
            assert isinstance(key, ConsumerGroupRegularExpressionKey)
            group.resolved_regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )
        case _:
            group.has_subscription_metadata_record = True


def _replay_tombstone(group: ConsumerGroup, record: CoordinatorRecord) -> None:
    key = record.key
    match key:
        case ConsumerGroupMemberMetadataKey():
            group.remove_member(key.member_id)
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.target_epoch = _NO_EPOCH
        case ConsumerGroupTargetAssignmentMemberKey():
            group.remove_target(key.member_id)
        case ConsumerGroupCurrentMemberAssignmentKey():
            group.release_member(key.member_id)
        case ConsumerGroupRegularExpressionKey():
            group.resolved_regexes.pop(key.regular_expression, None)
        case _:
            group.has_subscription_metadata_record = False


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)
