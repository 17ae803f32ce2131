"""The records of committed offsets, built from the requests that commit them.

A commit may have hundreds of partitions, and their records are almost the same: the keys of a topic
differ in the partition at their end, and values without metadata in their first fields. So the rest
is encoded once for each topic. Values of any other form are encoded one by one. Either way the
bytes are those of the records' schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.core.steps import PlainSteps
from dohle.groups.offsets.store import NO_EXPIRE_TIMESTAMP, CommittedOffset, GroupOffsets
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.errors import UnencodableMessage
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponsePartition,
)
from dohle.protocol.messages.records.classic_group import OffsetCommitKey, OffsetCommitValue
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponsePartition,
)
from dohle.protocol.record_framing import (
    CoordinatorRecord,
    encode_coordinator_key,
    encode_coordinator_value,
)
from dohle.records.builder import BatchBuilder

#: The version that Kafka 4.2 writes; the older one has a field for the time of expiry.
_VALUE_VERSION = 4
_EXPIRING_VALUE_VERSION = 1

#: The end of a key.
_PARTITION = struct.Struct(">i")
#: The beginning of a value of ``_VALUE_VERSION``: the version, the offset and the leader epoch.
_VALUE_HEAD = struct.Struct(">hqi")
_TIMESTAMP = struct.Struct(">q")

#: How many partitions are done in one step.
_AT_ONCE = 200

A = TypeVar("A", OffsetCommitResponsePartition, TxnOffsetCommitResponsePartition)


class CommitRecords:
    """Turns the partitions of a commit into a batch, the offsets in it, and response fields."""

    __slots__ = ("_expire_ms", "_group_id", "_length_max", "_now_ms", "builder", "offsets")

    def __init__(self, group_id: str, now_ms: int, expire_ms: int, length_max: int) -> None:
        """Start; ``length_max`` is the longest metadata that an offset may have."""
        self.builder = BatchBuilder()
        self.offsets: GroupOffsets = {}
        self._group_id = group_id
        self._now_ms = now_ms
        self._expire_ms = expire_ms
        self._length_max = length_max

    def add(
        self,
        topic: str,
        topic_id: Uuid,
        partitions: Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition],
        answer: type[A],
    ) -> PlainSteps[tuple[A, ...]]:
        """Add a topic; return the response for its partitions."""
        answers: list[A] = []
        for start in range(0, len(partitions), _AT_ONCE):
            some = partitions[start : start + _AT_ONCE]
            try:
                answers += self._add(topic, topic_id, some, answer)
            except UnencodableMessage as error:
                text = f"the offsets cannot be recorded: {error}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, text) from error
            if len(some) == _AT_ONCE:
                yield
        return tuple(answers)

    def _add(
        self,
        topic: str,
        topic_id: Uuid,
        partitions: Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition],
        answer: type[A],
    ) -> list[A]:
        answers, encoded, committed = [], [], {}
        now_ms, expire_ms = self._now_ms, self._expire_ms
        is_expiring = expire_ms != NO_EXPIRE_TIMESTAMP
        version = _EXPIRING_VALUE_VERSION if is_expiring else _VALUE_VERSION
        key_head, value_tail = _key_head(self._group_id, topic), _value_tail(now_ms, topic_id)
        for partition in partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if metadata and is_too_long(metadata, self._length_max):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                answers.append(answer(partition_index=index, error_code=code))
                continue
            answers.append(answer(partition_index=index))
            offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
            if metadata or is_expiring:
                value = OffsetCommitValue(
                    offset=offset,
                    leader_epoch=leader_epoch,
                    metadata=metadata,
                    commit_timestamp=now_ms,
                    expire_timestamp=expire_ms,
                    topic_id=topic_id,
                )
                value_bytes = encode_coordinator_value(value, version)
            else:
                value_bytes = _VALUE_HEAD.pack(version, offset, leader_epoch) + value_tail
            encoded.append((key_head + _PARTITION.pack(index), value_bytes))
            committed[index] = CommittedOffset(
                offset, leader_epoch, metadata, now_ms, expire_ms, topic_id
            )
        if encoded:
            self.builder.append_all(now_ms, encoded)
            self.offsets.setdefault(topic, {}).update(committed)
        return answers


class DeletionRecords:
    """The batch that deletes offsets of a group, and the offsets that it deletes."""

    __slots__ = ("_group_id", "_now_ms", "builder", "removed")

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.builder = BatchBuilder()
        self.removed: dict[str, list[int]] = {}
        self._group_id = group_id
        self._now_ms = now_ms

    def add(self, topic: str, indexes: Sequence[int]) -> PlainSteps[None]:
        """Add partitions of a topic."""
        key_head = _key_head(self._group_id, topic)
        for start in range(0, len(indexes), _AT_ONCE):
            some = indexes[start : start + _AT_ONCE]
            encoded = [(key_head + _PARTITION.pack(index), None) for index in some]
            self.builder.append_all(self._now_ms, encoded)
            self.removed.setdefault(topic, []).extend(some)
            yield


@lru_cache(maxsize=1024)
def _key_head(group_id: str, topic: str) -> bytes:
    """Return the common beginning of all keys of a group and a topic."""
    key = encode_coordinator_key(OffsetCommitKey(group=group_id, topic=topic))
    return key[: -_PARTITION.size]


def _value_tail(now_ms: int, topic_id: Uuid) -> bytes:
    """Return the common end of all values of a topic without metadata."""
    metadata, tags = _value_tail_parts(topic_id)
    return metadata + _TIMESTAMP.pack(now_ms) + tags


@lru_cache(maxsize=1024)
def _value_tail_parts(topic_id: Uuid) -> tuple[bytes, bytes]:
    """Return what comes before and after the commit timestamp at the end of such values."""
    zeros, ones = (
        encode_coordinator_value(
            OffsetCommitValue(commit_timestamp=number, topic_id=topic_id), _VALUE_VERSION
        )[_VALUE_HEAD.size :]
        for number in (0, -1)
    )
    before, behind = find_pattern(zeros, ones, {_TIMESTAMP.size: "q"}).constants
    return before, behind


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the record that deletes an offset."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def is_too_long(metadata: str, length_max: int) -> bool:
    """Tell whether it is too long, counted in UTF-16 code units as Java does."""
    if len(metadata) * 2 <= length_max:
        return False
    return len(metadata.encode("utf-16-be", "surrogatepass")) // 2 > length_max
