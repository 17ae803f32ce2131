"""Committed offsets: fetching them from a group's coordinator, and committing them.

Topics are sent by name, not by id: OffsetCommit and OffsetFetch from v10 on would need the id of
every topic, including deleted ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.group.consumer_protocol import by_topic
from dohle.client.group.membership import GroupMetadata
from dohle.client.net.connection import Connection
from dohle.core.errors import COORDINATOR_UNREACHED, ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicPartition
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

NO_OFFSET = -1
NO_LEADER_EPOCH = -1

_NAMED_TOPICS_MAX = 9
_FETCH_BATCHED = 8
_REQUIRE_STABLE = 7
_STATIC_MEMBERS = 7


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: that of the next record to read."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


def places_of(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit, as users give them: a number is an offset, too."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"offsets is {given!r}: pass a dict from TopicPartition(topic, partition) to the "
            "offset of the next record to read"
        )
    found = {}
    for partition, place in given.items():
        if isinstance(place, int) and not isinstance(place, bool):
            place = OffsetAndMetadata(place)
        if not isinstance(place, OffsetAndMetadata):
            raise TypeError(f"the offset of {partition} is {place!r}: it must be a number")
        found[partition] = place
    return found


async def fetch_offsets(
    connection: Connection,
    group_id: GroupId,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
) -> Results[TopicPartition, OffsetAndMetadata]:
    """Fetch the offsets of some partitions, or of all; partitions without one are left out.

    With ``require_stable`` a partition whose offset a transaction may still change is an error.
    """
    version = connection.version_of(OffsetFetchRequest, _NAMED_TOPICS_MAX)
    topics = None if partitions is None else by_topic(partitions)
    stable = require_stable and version >= _REQUIRE_STABLE
    if version >= _FETCH_BATCHED:
        group = OffsetFetchRequestGroup(
            group_id=group_id,
            topics=None
            if topics is None
            else tuple(
                OffsetFetchRequestTopics(name=name, partition_indexes=some)
                for name, some in topics.items()
            ),
        )
        request = OffsetFetchRequest(groups=(group,), require_stable=stable)
    else:
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if topics is None
            else tuple(
                OffsetFetchRequestTopic(name=name, partition_indexes=some)
                for name, some in topics.items()
            ),
            require_stable=stable,
        )
    answer = await connection.request(request, OffsetFetchResponse, version_max=_NAMED_TOPICS_MAX)
    found = answer.groups[0] if version >= _FETCH_BATCHED else answer
    if found.error_code:
        raise answered_error(found.error_code, f"offsets of group {group_id}")
    done: dict[TopicPartition, OffsetAndMetadata] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                about = f"offset of group {group_id} for {partition}"
                errors[partition] = answered_error(each.error_code, about)
            elif each.committed_offset != NO_OFFSET:
                done[partition] = OffsetAndMetadata(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )
    return Results(done, errors)


async def commit_offsets(
    connection: Connection,
    who: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> Results[TopicPartition, None]:
    """Commit offsets; an error that concerns all partitions alike is raised."""
    version = connection.version_of(OffsetCommitRequest, _NAMED_TOPICS_MAX)
    request = OffsetCommitRequest(
        group_id=who.group_id,
        generation_id_or_member_epoch=who.generation_id,
        member_id=who.member_id,
        group_instance_id=who.group_instance_id if version >= _STATIC_MEMBERS else None,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=(place := offsets[TopicPartition(name, partition)]).offset,
                        committed_leader_epoch=place.leader_epoch,
                        committed_metadata=place.metadata,
                    )
                    for partition in some
                ),
            )
            for name, some in by_topic(offsets).items()
        ),
    )
    answer = await connection.request(request, OffsetCommitResponse, version_max=_NAMED_TOPICS_MAX)
    done: dict[TopicPartition, None] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            about = f"commit of group {who.group_id}"
            if each.error_code in OF_THE_GROUP:
                raise answered_error(each.error_code, about)
            if each.error_code:
                errors[partition] = answered_error(each.error_code, f"{about} for {partition}")
            else:
                done[partition] = None
    return Results(done, errors)


#: Errors of a commit that do not concern a single partition.
OF_THE_GROUP = COORDINATOR_UNREACHED | frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
