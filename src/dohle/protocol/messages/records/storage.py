"""Producer snapshots and the records about remote log segments.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.protocol.fields import (
    array,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint32,
    uuid,
)
from dohle.protocol.schema import Data, MetadataRecord, Struct


class ProducerEntry(Struct):
    producer_id: int = int64("1+")
    epoch: int = int16("1+")
    last_sequence: int = int32("1+")
    last_offset: int = int64("1+")
    offset_delta: int = int32("1+")
    timestamp: int = int64("1+")
    coordinator_epoch: int = int32("1+")
    current_txn_first_offset: int = int64("1+")


class ProducerSnapshot(Data, versions="1", flexible="none"):
    crc: int = uint32("1+")
    producer_entries: tuple[ProducerEntry, ...] = array(ProducerEntry, "1+")


class TopicIdPartitionEntry(Struct):
    name: str = string("0+")
    id: Uuid = uuid("0+")
    partition: int = int32("0+")


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, "0+")
    id: Uuid = uuid("0+")


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = int32("0+")
    offset: int = int64("0+")


class RemoteLogSegmentMetadataRecord(MetadataRecord, api_key=0, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry, "0+")
    start_offset: int = int64("0+")
    end_offset: int = int64("0+")
    broker_id: int = int32("0+")
    max_timestamp_ms: int = int64("0+")
    event_timestamp_ms: int = int64("0+")
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = array(
        SegmentLeaderEpochEntry, "0+"
    )
    segment_size_in_bytes: int = int32("0+")
    custom_metadata: bytes | None = binary("0+", nullable=True, default=None)
    remote_log_segment_state: int = int8("0+")
    txn_index_empty: bool = boolean("0+", tag=0)


class RemoteLogSegmentMetadataUpdateRecord(MetadataRecord, api_key=1, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry, "0+")
    broker_id: int = int32("0+")
    event_timestamp_ms: int = int64("0+")
    custom_metadata: bytes | None = binary("0+", nullable=True, default=None)
    remote_log_segment_state: int = int8("0+")


class RemotePartitionDeleteMetadataRecord(MetadataRecord, api_key=2, versions="0", flexible="0+"):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, "0+")
    broker_id: int = int32("0+")
    event_timestamp_ms: int = int64("0+")
    remote_partition_delete_state: int = int8("0+")


class RemoteLogSegmentMetadataSnapshotRecord(
    MetadataRecord, api_key=3, versions="0", flexible="0+"
):
    segment_id: Uuid = uuid("0+")
    start_offset: int = int64("0+")
    end_offset: int = int64("0+")
    broker_id: int = int32("0+")
    max_timestamp_ms: int = int64("0+")
    event_timestamp_ms: int = int64("0+")
    segment_leader_epochs: tuple[SegmentLeaderEpochEntry, ...] = array(
        SegmentLeaderEpochEntry, "0+"
    )
    segment_size_in_bytes: int = int32("0+")
    custom_metadata: bytes | None = binary("0+", nullable=True, default=None)
    remote_log_segment_state: int = int8("0+")
    txn_index_empty: bool = boolean("0+", tag=0)
