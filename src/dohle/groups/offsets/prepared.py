"""Commits and deletions of offsets, prepared ahead of their commands.

A request may be about 100,000 partitions. What follows from it alone (the records, the answer) is
made in steps, between which others are served. The command itself is then short: the group is asked
whether it allows it, the batch is appended, and the offsets are taken in together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

from dohle.core.steps import PlainSteps
from dohle.core.uuid import ZERO_UUID
from dohle.groups.offsets.records import CommitRecords, DeletionRecords
from dohle.groups.offsets.store import NO_EXPIRE_TIMESTAMP
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dohle.protocol.messages.offset_delete import OffsetDeleteResponse
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

#: A batch of a group's tombstones has fewer than twice this many.
_PART = 500

_NO_RETENTION_TIME = -1
_TIMESTAMP_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """An OffsetCommit: all topics have names."""

    request: OffsetCommitRequest
    records: CommitRecords
    response: OffsetCommitResponse


@dataclass(frozen=True, slots=True)
class PreparedTxnCommit:
    """A TxnOffsetCommit."""

    request: TxnOffsetCommitRequest
    records: CommitRecords
    response: TxnOffsetCommitResponse


@dataclass(frozen=True, slots=True)
class PreparedDeletion:
    """An OffsetDelete: the offsets that there were, and the topics that had no subscriber."""

    group_id: str
    records: DeletionRecords
    free_topics: Set[str]
    response: OffsetDeleteResponse


class PreparedRemoval:
    """The deletion of all offsets of a group, in as many batches as they need."""

    __slots__ = ("found", "group_id", "parts")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.parts: list[DeletionRecords] = []
        #: By topic.
        self.found: dict[str, Collection[int]] = {}

    def add(self, topic: str, indexes: Sequence[int], now_ms: int) -> PlainSteps[None]:
        """Add all partitions of a topic."""
        self.found[topic] = frozenset(indexes)
        for start in range(0, len(indexes), _PART):
            if not self.parts or self.parts[-1].builder.record_count >= _PART:
                self.parts.append(DeletionRecords(self.group_id, now_ms))
            yield from self.parts[-1].add(topic, indexes[start : start + _PART])


def prepare_commit(
    request: OffsetCommitRequest, now_ms: int, length_max: int
) -> PlainSteps[PreparedCommit]:
    """Prepare a commit; ``length_max`` is the longest metadata that an offset may have."""
    expire_ms = NO_EXPIRE_TIMESTAMP
    if request.retention_time_ms != _NO_RETENTION_TIME:
        expire_ms = min(now_ms + request.retention_time_ms, _TIMESTAMP_MAX)
    records = CommitRecords(request.group_id, now_ms, expire_ms, length_max)
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        if topics:
            yield
        partitions = yield from records.add(
            topic.name, topic.topic_id, topic.partitions, OffsetCommitResponsePartition
        )
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return PreparedCommit(request, records, OffsetCommitResponse(topics=tuple(topics)))


def prepare_txn_commit(
    request: TxnOffsetCommitRequest, now_ms: int, length_max: int
) -> PlainSteps[PreparedTxnCommit]:
    """Prepare a commit in a transaction."""
    records = CommitRecords(request.group_id, now_ms, NO_EXPIRE_TIMESTAMP, length_max)
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        if topics:
            yield
        partitions = yield from records.add(
            topic.name, ZERO_UUID, topic.partitions, TxnOffsetCommitResponsePartition
        )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return PreparedTxnCommit(request, records, TxnOffsetCommitResponse(topics=tuple(topics)))
