"""What ``dohle group describe`` shows: offsets and lag, members, state."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dohle.cli.output import print_json, print_table
from dohle.client import End
from dohle.client.group.consumer_protocol import by_topic
from dohle.core.ids import TopicPartition

if TYPE_CHECKING:
    from dohle.client import Admin, GroupDescription, GroupMemberDescription, OffsetAndMetadata

Description = Mapping[str, object]


async def describe(admin: Admin, groups: Sequence[GroupDescription]) -> list[Description]:
    """Return the details of each group; the ends of all logs are looked up at once."""
    committed = {
        group.group_id: (await admin.list_group_offsets(group.group_id)).ok() for group in groups
    }
    readers = {
        group.group_id: {each: member for member in group.members for each in member.assignment}
        for group in groups
    }
    wanted = {each for some in (*committed.values(), *readers.values()) for each in some}
    ends: dict[TopicPartition, int] = {}
    if wanted:
        # A partition that cannot be reached, or is deleted, has no end to show.
        found = await admin.list_offsets(dict.fromkeys(sorted(wanted), End()))
        ends = {partition: place.offset for partition, place in found.done.items()}
    return [
        {
            "groupId": group.group_id,
            "type": str(group.type),
            "state": group.state,
            "protocolType": group.protocol_type,
            "assignor": group.assignor,
            "coordinator": group.coordinator_id,
            "members": [_member(member) for member in group.members],
            "partitions": [
                _partition(each, committed[group.group_id], ends, readers[group.group_id])
                for each in sorted({*committed[group.group_id], *readers[group.group_id]})
            ],
        }
        for group in groups
    ]


def _partition(
    partition: TopicPartition,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
    readers: Mapping[TopicPartition, GroupMemberDescription],
) -> dict[str, object]:
    place, end, reader = committed.get(partition), ends.get(partition), readers.get(partition)
    current = None if place is None else place.offset
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "currentOffset": current,
        "logEndOffset": end,
        "lag": None if current is None or end is None else max(end - current, 0),
        "memberId": None if reader is None else reader.member_id,
        "host": None if reader is None else reader.host,
        "clientId": None if reader is None else reader.client_id,
    }


def _member(member: GroupMemberDescription) -> dict[str, object]:
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "memberEpoch": member.member_epoch,
        "assignment": _assignment(member.assignment),
        "targetAssignment": None
        if member.target_assignment is None
        else _assignment(member.target_assignment),
        "subscribedTopics": member.subscribed_topics,
        "subscribedTopicRegex": member.subscribed_topic_regex,
    }


def _assignment(partitions: Sequence[TopicPartition]) -> dict[str, object]:
    return dict(by_topic(partitions).items())


def print_descriptions(args: argparse.Namespace, descriptions: Sequence[Description]) -> None:
    """Print groups in the requested form."""
    if args.json:
        for description in descriptions:
            print_json(description)
    elif args.state:
        print_table([_state_row(each) for each in descriptions], if_empty="there are no groups")
    else:
        for number, description in enumerate(descriptions):
            if number:
                print()
            _print_group(description, members=args.members)


def _print_group(description: Description, *, members: bool) -> None:
    print(
        f"group {description['groupId']} ({description['type']}, {description['state']}, "
        f"coordinator {description['coordinator']})"
    )
    rows = description["members" if members else "partitions"]
    assert isinstance(rows, list)
    if members:
        rows = [_member_row(row) for row in rows]
    print_table(rows, if_empty="no members" if members else "no committed offsets, no members")


def _member_row(member: Mapping[str, object]) -> dict[str, object]:
    assignment = member["assignment"]
    assert isinstance(assignment, dict)
    return {
        "memberId": member["memberId"],
        "instanceId": member["instanceId"],
        "clientId": member["clientId"],
        "host": member["host"],
        "partitions": sum(map(len, assignment.values())),
        "assignment": " ".join(
            f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in assignment.items()
        ),
    }


def _state_row(description: Description) -> dict[str, object]:
    members = description["members"]
    assert isinstance(members, list)
    names = ("groupId", "type", "state", "assignor", "coordinator")
    return {**{name: description[name] for name in names}, "members": len(members)}
