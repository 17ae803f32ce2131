"""Counting what fetches take away from partitions."""

from __future__ import annotations

from dohle.core.ids import BrokerId
from dohle.protocol.messages.fetch import PartitionData
from dohle.replication.fetch_sessions import SessionPartition
from dohle.server.partitions.partitions import Partitions

#: Below this version records are converted to an older format.
_BATCHES = 4


def count_fetched(
    partitions: Partitions,
    part: SessionPartition,
    data: PartitionData,
    follower: BrokerId | None,
    version: int,
) -> None:
    """Count what one answer has of a partition. One that is not here has no counts."""
    partition = None if part.topic is None else partitions.get(part.topic, part.partition)
    if partition is None:
        return
    traffic, size = partition.traffic, len(data.records or b"")
    traffic.fetch_requests += 1
    if data.error_code:
        traffic.failed_fetch_requests += 1
    if follower is not None:
        traffic.replication_bytes_out += size
    else:
        traffic.bytes_out += size
        traffic.fetch_conversions += version < _BATCHES and size > 0
