"""Remote segments: what is known of each, its states, and the records that tell of it (T4, T9).

Kafka's records, in ``__remote_log_metadata``: one that describes a segment and says that its copy
has begun, then updates of its state. A segment has an id of its own: the same offsets may be in the
store several times, after a retry or a change of leaders.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from dohle.core.ids import Uuid
from dohle.core.uuid import uuid_to_text
from dohle.protocol.messages.records.storage import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from dohle.protocol.record_framing import encode_metadata_record

#: An epoch and the offset at which it begins, oldest first.
Epochs = tuple[tuple[int, int], ...]

#: Where the records are (T9).
METADATA_TOPIC: Final = "__remote_log_metadata"
_VERSION: Final = 0


class SegmentState(IntEnum):
    """How far the copy or the deletion of a segment is."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_FOLLOWING: Final = {
    SegmentState.COPY_SEGMENT_STARTED: (
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    ),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_STARTED,),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_FINISHED,),
    SegmentState.DELETE_SEGMENT_FINISHED: (),
}


def may_follow(before: SegmentState | None, after: SegmentState) -> bool:
    """Tell whether a segment may come from one state to another (T4)."""
    if before is None:
        return after is SegmentState.COPY_SEGMENT_STARTED
    return before is after or after in _FOLLOWING[before]


@dataclass(frozen=True, slots=True)
class SegmentId:
    """Which segment of which partition."""

    topic: str
    topic_id: Uuid
    partition: int
    id: Uuid

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}:{uuid_to_text(self.id)}"


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """What the metadata says of a segment."""

    segment_id: SegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    #: Those of its records: the first begins at the start offset.
    epochs: Epochs
    size: int
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    #: False for those of old brokers too, which do not say.
    txn_index_empty: bool = False

    @property
    def id(self) -> Uuid:
        """Its own id."""
        return self.segment_id.id

    def updated(self, update: SegmentUpdate) -> RemoteSegment:
        """Return it in its new state."""
        custom = update.custom_metadata
        return replace(
            self,
            state=update.state,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=self.custom_metadata if custom is None else custom,
        )

    def encode(self) -> bytes:
        """Return the value of the record that begins its life."""
        return encode_metadata_record(
            RemoteLogSegmentMetadataRecord(
                remote_log_segment_id=_id_entry(self.segment_id),
                start_offset=self.start_offset,
                end_offset=self.end_offset,
                broker_id=self.broker_id,
                max_timestamp_ms=self.max_timestamp_ms,
                event_timestamp_ms=self.event_timestamp_ms,
                segment_leader_epochs=tuple(
                    SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset)
                    for epoch, offset in self.epochs
                ),
                segment_size_in_bytes=self.size,
                custom_metadata=self.custom_metadata,
                remote_log_segment_state=int(self.state),
                txn_index_empty=self.txn_index_empty,
            ),
            _VERSION,
        )


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """That a segment has come to another state."""

    segment_id: SegmentId
    state: SegmentState
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None = None

    def encode(self) -> bytes:
        """Return the value of its record."""
        return encode_metadata_record(
            RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=_id_entry(self.segment_id),
                broker_id=self.broker_id,
                event_timestamp_ms=self.event_timestamp_ms,
                custom_metadata=self.custom_metadata,
                remote_log_segment_state=int(self.state),
            ),
            _VERSION,
        )


def event_of(record: object) -> RemoteSegment | SegmentUpdate | None:
    """Return what a decoded record tells of a segment; None if it is about something else."""
    match record:
        case RemoteLogSegmentMetadataRecord():
            return RemoteSegment(
                segment_id=_id_of(record.remote_log_segment_id),
                start_offset=record.start_offset,
                end_offset=record.end_offset,
                max_timestamp_ms=record.max_timestamp_ms,
                broker_id=record.broker_id,
                event_timestamp_ms=record.event_timestamp_ms,
                epochs=tuple(
                    (entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs
                ),
                size=record.segment_size_in_bytes,
                state=SegmentState(record.remote_log_segment_state),
                custom_metadata=record.custom_metadata,
                txn_index_empty=record.txn_index_empty,
            )
        case RemoteLogSegmentMetadataUpdateRecord():
            return SegmentUpdate(
                _id_of(record.remote_log_segment_id),
                SegmentState(record.remote_log_segment_state),
                record.broker_id,
                record.event_timestamp_ms,
                record.custom_metadata,
            )
    return None


def _id_entry(segment_id: SegmentId) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(
        topic_id_partition=TopicIdPartitionEntry(
            name=segment_id.topic, id=segment_id.topic_id, partition=segment_id.partition
        ),
        id=segment_id.id,
    )


def _id_of(entry: RemoteLogSegmentIdEntry) -> SegmentId:
    place = entry.topic_id_partition
    return SegmentId(place.name, place.id, place.partition, entry.id)


def metadata_key(topic_id: Uuid, partition: int) -> bytes:
    """Return what is hashed to find the metadata partition of a partition: four bytes (T9)."""
    chain = 1
    for half in (topic_id[8:], topic_id[:8]):
        number = int.from_bytes(half, "big")
        chain = 31 * chain + ((number ^ (number >> 32)) & 0xFFFFFFFF)
    return ((31 * chain + partition) & 0xFFFFFFFF).to_bytes(4, "big")
