"""Counting what fetches take away from partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.ids import BrokerId
from dohle.protocol.messages.fetch import PartitionData
from dohle.replication.fetch_sessions import SessionPartition
from dohle.server.partitions.old_fetches import Unconverted
from dohle.server.partitions.partitions import Partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer


def count_fetched(
    broker: BrokerServer,
    part: SessionPartition,
    data: PartitionData,
    follower: BrokerId | None,
) -> None:
    """Count what one answer has of a partition. One that is not here has no counts.

    The bytes of records that are converted for an old consumer are counted when they are known.
    """
    partition: Partition | None = part.local
    if partition is None or partition.is_gone:
        partition = None
        if part.topic is not None:
            partition = broker.partitions.get(part.topic, part.partition)
        if partition is None:
            return
    traffic, records = partition.traffic, data.records
    size = len(records) if records and not isinstance(records, Unconverted) else 0
    traffic.fetch_requests += 1
    if data.error_code:
        traffic.failed_fetch_requests += 1
    if follower is not None:
        traffic.replication_bytes_out += size
        if follower in partition.image.adding_replicas:
            traffic.reassignment_bytes_out += size
        if size and partition.throttles_leading:
            # Kafka counts what the answer has around the records as well.
            broker.throttles.leader.record(size, broker.clock.monotonic_ms())
    else:
        traffic.bytes_out += size
