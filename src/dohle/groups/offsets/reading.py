"""Fetching committed offsets.

An offset that was never committed is -1, without an error, in an unknown group too. For a partition
with a pending transactional offset, a fetch of stable offsets returns 88.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import PlainSteps
from dohle.core.uuid import ZERO_UUID
from dohle.groups.context import GroupContext
from dohle.groups.offsets.store import CommittedOffset, OffsetStore

#: How many offsets of a topic are fetched in one step.
_FETCHED_AT_ONCE = 500

_NOTHING = CommittedOffset(-1, -1, "", 0)


class TopicAsked(NamedTuple):
    """A topic whose offsets are requested; without an id if the request has none."""

    name: TopicName
    partition_indexes: Sequence[int]
    topic_id: Uuid = ZERO_UUID


#: A partition with its offset, or an error.
FetchedPartition = tuple[int, CommittedOffset, ErrorCode]


class FetchedTopic(NamedTuple):
    """A topic's offsets for the response."""

    name: TopicName
    partitions: list[FetchedPartition]
    topic_id: Uuid = ZERO_UUID


class OffsetReader:
    """Reads the offsets of a shard's groups. It changes nothing."""

    __slots__ = ("_context", "_store")

    def __init__(self, context: GroupContext, store: OffsetStore) -> None:
        self._context = context
        self._store = store

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        topics: Sequence[TopicAsked],
        *,
        require_stable: bool,
    ) -> list[FetchedTopic]:
        """Return a group's offsets. Changes nothing."""
        committed = {}
        if self._may_fetch(group_id, member_id, member_epoch):
            committed = self._store.of_group(group_id) or {}
        unstable: Mapping[str, Collection[int]] = {}
        if require_stable:
            unstable = self._store.pending_of_group(group_id)
        found = []
        for topic, partition_indexes, topic_id in topics:
            offsets = committed.get(topic, {})
            unstable_indexes = unstable.get(topic, ())
            partitions = []
            for index in partition_indexes:
                offset = offsets.get(index, _NOTHING)
                if index in unstable_indexes:
                    partitions.append((index, _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                elif offset.topic_id != topic_id and _is_other_topic(offset.topic_id, topic_id):
                    partitions.append((index, _NOTHING, ErrorCode.NONE))
                else:
                    partitions.append((index, offset, ErrorCode.NONE))
            found.append(FetchedTopic(topic, partitions, topic_id))
        return found

    def fetch_all(
        self, group_id: str, member_id: str | None, member_epoch: int, *, require_stable: bool
    ) -> PlainSteps[list[FetchedTopic]]:
        """Return a group's offsets of all topics, some in each step as they are then."""
        found: list[FetchedTopic] = []
        if not self._may_fetch(group_id, member_id, member_epoch):
            return found
        committed = self._store.of_group(group_id) or {}
        for topic in map(TopicName, tuple(committed)):
            partitions: list[FetchedPartition] = []
            indexes = tuple(committed.get(topic, ()))
            for start in range(0, len(indexes), _FETCHED_AT_ONCE):
                some = [TopicAsked(topic, indexes[start : start + _FETCHED_AT_ONCE])]
                (part,) = self.fetch(
                    group_id, member_id, member_epoch, some, require_stable=require_stable
                )
                # Others may be deleted meanwhile.
                partitions += [
                    each for each in part.partitions if each[1] is not _NOTHING or each[2]
                ]
                yield
            if partitions:
                found.append(FetchedTopic(topic, partitions))
        return found

    def _may_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> bool:
        """Tell whether the group exists; a fetch from someone who is not a member is refused."""
        group = self._context.groups.get(group_id)
        if group is None:
            return False
        try:
            group.validate_offset_fetch(member_id, member_epoch)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return False
        return True


def _is_other_topic(committed: Uuid, asked: Uuid) -> bool:
    """Tell whether an offset belongs to an earlier topic of the same name."""
    return ZERO_UUID not in (committed, asked)
