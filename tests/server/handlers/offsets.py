"""Committing and fetching a group's offsets, in every version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.wire import Wire

BATCHED = 8
TOPIC_IDS = 10
NONE = ErrorCode.NONE

Offsets = dict[tuple[str, int], int]


async def find_coordinator(node: Node, wire: Wire, *groups: str) -> None:
    """Do what clients do first, and wait until the coordinator has its state."""
    answer = await wire.send(FindCoordinatorRequest(coordinator_keys=groups or ("g",)))
    assert {one.error_code for one in answer.coordinators} == {NONE}
    await until(lambda: not node.broker.groups.is_loading)


def id_of(node: Node, topic: str) -> Uuid:
    image = node.broker.image.topic(TopicName(topic))
    assert image is not None
    return image.id


async def commit(
    node: Node,
    wire: Wire,
    offsets: Offsets,
    version: int = 9,
    *,
    group: str = "g",
    generation: int = -1,
    metadata: str = "",
    leader_epoch: int = -1,
) -> dict[tuple[str, int], ErrorCode]:
    """Commit; topics that there are none of may be named as long as topics have names."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    ids = {
        topic: id_of(node, topic) if version >= TOPIC_IDS else Uuid(bytes(16)) for topic in by_topic
    }
    request = OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=generation,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=TopicName(topic), topic_id=ids[topic], partitions=tuple(partitions)
            )
            for topic, partitions in by_topic.items()
        ),
    )
    answer = await wire.send(request, version)
    names = {topic_id: topic for topic, topic_id in ids.items()}
    return {
        (names[topic.topic_id] if version >= TOPIC_IDS else topic.name, each.partition_index): (
            ErrorCode(each.error_code)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch_request(
    node: Node,
    version: int,
    topics: dict[str, list[int]] | None,
    groups: Iterable[str],
    *,
    require_stable: bool = False,
) -> OffsetFetchRequest:
    if version < BATCHED:
        [group] = groups
        old = None
        if topics is not None:
            old = tuple(
                OffsetFetchRequestTopic(name=TopicName(name), partition_indexes=tuple(indexes))
                for name, indexes in topics.items()
            )
        return OffsetFetchRequest(
            group_id=GroupId(group), topics=old, require_stable=require_stable
        )
    asked = None
    if topics is not None:
        asked = tuple(
            OffsetFetchRequestTopics(
                name=TopicName(name),
                topic_id=id_of(node, name) if version >= TOPIC_IDS else Uuid(bytes(16)),
                partition_indexes=tuple(indexes),
            )
            for name, indexes in topics.items()
        )
    return OffsetFetchRequest(
        groups=tuple(
            OffsetFetchRequestGroup(group_id=GroupId(group), topics=asked) for group in groups
        ),
        require_stable=require_stable,
    )


async def fetch(
    node: Node,
    wire: Wire,
    topics: dict[str, list[int]] | None,
    version: int = 9,
    *,
    group: str = "g",
    require_stable: bool = False,
) -> dict[tuple[str, int], Any]:
    """Return the answer for each partition, or {} for an error of the group."""
    request = fetch_request(node, version, topics, [group], require_stable=require_stable)
    answer = await wire.send(request, version)
    found = answer.topics
    if version >= BATCHED:
        [one] = answer.groups
        assert (one.group_id, one.error_code) == (group, NONE)
        found = one.topics
    names = {topic.id: topic.name for topic in node.broker.image.topics.values()}
    return {
        (names[topic.topic_id] if version >= TOPIC_IDS else topic.name, each.partition_index): each
        for topic in found
        for each in topic.partitions
    }


async def offsets(node: Node, wire: Wire, group: str = "g", version: int = 9) -> Offsets:
    """Return all offsets of a group."""
    found = await fetch(node, wire, None, version, group=group)
    return {key: each.committed_offset for key, each in found.items()}
