"""The fast path of a commit that repeats the previous one's partitions and metadata.

What the records have in common is encoded once; the whole batch is then packed in one step from the
offsets, the leader epochs and the time. The result is the batch that the records of
``CommitRecords`` would form.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from dohle.core.checksum import crc32c
from dohle.core.ids import Uuid
from dohle.core.steps import finish
from dohle.groups.offsets.records import CommitRecords, is_too_long
from dohle.groups.offsets.store import NO_EXPIRE_TIMESTAMP
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponsePartition,
)
from dohle.records.batch import ATTRIBUTES_AT, CRC_AT

#: The changing numbers of a batch, by their size: the base and the largest timestamp in the header;
#: in every record first the offset and the leader epoch, and then the commit timestamp.
_NUMBERS = {16: "qq", 12: "qi", 8: "q"}
#: Their positions among the fields of the batch, with a constant between any two.
_BASE_TIMESTAMP, _MAX_TIMESTAMP = 1, 2
_OFFSETS, _LEADER_EPOCHS, _COMMIT_TIMESTAMPS = (
    slice(4, None, 5),
    slice(5, None, 5),
    slice(7, None, 5),
)

_CRC = struct.Struct(">I")
_ANY_LENGTH = 2**31


class RepeatedTopic(NamedTuple):
    """What a topic's offsets have in common from commit to commit."""

    name: str
    topic_id: Uuid
    partition_indexes: tuple[int, ...]
    metadata: tuple[str, ...]


class RepeatedCommit:
    """Packs the batches of such commits; see the module."""

    __slots__ = (
        "_blank",
        "_fields",
        "_pack_into",
        "metadata",
        "record_count",
        "request",
        "topics",
    )

    def __init__(self, zeros: OffsetCommitRequest, ones: OffsetCommitRequest) -> None:
        """Prepare for such commits; these two are ``with_numbers`` 0 and -1.

        All topics have names.
        """
        #: What it says of the group, the member and the partitions holds for all of them.
        self.request = zeros
        self.topics = tuple(
            RepeatedTopic(
                topic.name,
                topic.topic_id,
                tuple(each.partition_index for each in topic.partitions),
                tuple(each.committed_metadata or "" for each in topic.partitions),
            )
            for topic in zeros.topics
        )
        self.record_count = sum(len(topic.partition_indexes) for topic in self.topics)
        self.metadata = {text for topic in self.topics for text in topic.metadata if text}
        blank, other = _batch(zeros, 0), _batch(ones, -1)
        pattern = find_pattern(blank[ATTRIBUTES_AT:], other[ATTRIBUTES_AT:], _NUMBERS)
        packed = struct.Struct(">" + pattern.format)
        self._pack_into = packed.pack_into
        self._fields: list[Any] = list(packed.unpack_from(blank, ATTRIBUTES_AT))
        # Its header is right up to the checksum.
        self._blank = blank

    def has_metadata_longer_than(self, length_max: int) -> bool:
        """Tell whether any metadata is longer than this."""
        return any(is_too_long(text, length_max) for text in self.metadata)

    def batch(self, now_ms: int, offsets: Sequence[int], leader_epochs: Sequence[int]) -> bytearray:
        """Return the records as a batch; the numbers are in the order of the request."""
        fields = self._fields
        fields[_BASE_TIMESTAMP] = fields[_MAX_TIMESTAMP] = now_ms
        fields[_OFFSETS] = offsets
        fields[_LEADER_EPOCHS] = leader_epochs
        fields[_COMMIT_TIMESTAMPS] = (now_ms,) * len(offsets)
        batch = bytearray(self._blank)
        self._pack_into(batch, ATTRIBUTES_AT, *fields)
        _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
        return batch


def with_numbers(request: OffsetCommitRequest, number: int) -> OffsetCommitRequest:
    """Return a commit with ``number`` for every offset and leader epoch."""
    return request.replace(
        topics=tuple(
            topic.replace(
                partitions=tuple(
                    each.replace(committed_offset=number, committed_leader_epoch=number)
                    for each in topic.partitions
                )
            )
            for topic in request.topics
        )
    )


def _batch(request: OffsetCommitRequest, now_ms: int) -> bytes:
    records = CommitRecords(request.group_id, now_ms, NO_EXPIRE_TIMESTAMP, _ANY_LENGTH)
    for topic in request.topics:
        finish(
            records.add(topic.name, topic.topic_id, topic.partitions, OffsetCommitResponsePartition)
        )
    return bytes(records.builder.build())
