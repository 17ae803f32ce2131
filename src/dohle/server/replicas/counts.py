"""What a fetcher has done and how far it is behind, for metrics."""

from __future__ import annotations

from dohle.server.partitions.partitions import Partition


class FetcherCounts:
    """The counts of one fetcher."""

    __slots__ = ("bytes", "failed", "lags", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        #: By how many records a replica is behind its leader's high watermark.
        self.lags: dict[Partition, int] = {}
        #: Those that are not copied until they have another leader.
        self.failed: dict[Partition, None] = {}

    def copied(self, partition: Partition, size: int, high_watermark: int) -> None:
        """Count what an answer had of a partition, and note how far that goes."""
        self.bytes += size
        partition.traffic.replication_bytes_in += size
        self.lags[partition] = max(0, high_watermark - partition.log.log_end_offset)

    def forget(self, partition: Partition) -> None:
        """Tell nothing more of a partition, or begin anew."""
        self.lags.pop(partition, None)
        self.failed.pop(partition, None)
