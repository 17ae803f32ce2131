"""FetchSnapshot, api key 59: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.fields import (
    array,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uint16,
    uuid,
)
from dohle.protocol.schema import Records, Request, Response, Struct


class SnapshotId(Struct):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: TopicName = string("0+")
    partitions: tuple[FetchSnapshotRequestPartitionSnapshot, ...] = array(
        FetchSnapshotRequestPartitionSnapshot, "0+"
    )


class FetchSnapshotRequest(Request, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable=True, default=None, tag=0)
    replica_id: BrokerId = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2147483647)
    topics: tuple[FetchSnapshotRequestTopicSnapshot, ...] = array(
        FetchSnapshotRequestTopicSnapshot, "0+"
    )


class LeaderIdAndEpoch(Struct):
    leader_id: BrokerId = int32("0+")
    leader_epoch: int = int32("0+")


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+", tag=0)
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: Records | None = record_data("0+")


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: TopicName = string("0+")
    partitions: tuple[FetchSnapshotResponsePartitionSnapshot, ...] = array(
        FetchSnapshotResponsePartitionSnapshot, "0+"
    )


class NodeEndpoint(Struct):
    node_id: BrokerId = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Response, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: tuple[FetchSnapshotResponseTopicSnapshot, ...] = array(
        FetchSnapshotResponseTopicSnapshot, "0+"
    )
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
