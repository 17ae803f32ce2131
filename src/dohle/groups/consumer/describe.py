"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from dohle.core.ids import GroupId, TopicName
from dohle.groups.assignors.assignment import Assignment as Partitions
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from dohle.groups.context import Topics
from dohle.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe_group(group: ConsumerGroup, topics: Topics, default_assignor: str) -> DescribedGroup:
    """Describe a group."""
    return DescribedGroup(
        group_id=GroupId(group.group_id),
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=tuple(_member(group, member, topics) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    target = group.target.get(member.member_id, NO_PARTITIONS)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(
            TopicName(name) for name in sorted(member.subscribed_topic_names)
        ),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(target, topics),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(partitions_of: Partitions, topics: Topics) -> Assignment:
    """Return an assignment with topic names; deleted topics are left out."""
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id, topic_name=name, partitions=tuple(sorted(partitions))
            )
            for topic_id, partitions in partitions_of.items()
            if (name := topics.name_of(topic_id)) is not None
        )
    )
