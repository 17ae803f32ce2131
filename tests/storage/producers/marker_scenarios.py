"""Markers that a partition must refuse, for tests and for deliberate defects."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from tests.storage.producers.producer_partition import COORDINATOR, Partition, data, marker


def late_marker(partition: Partition) -> None:
    partition.append(data(0, 0, epoch=5, transactional=True))
    partition.refuses(
        ErrorCode.INVALID_PRODUCER_EPOCH, marker(1, epoch=5), origin=COORDINATOR, version=2
    )
    partition.end(marker(1, epoch=6), version=2)
    assert partition.entry().producer_epoch == 6


def marker_of_a_deposed_coordinator(partition: Partition) -> None:
    partition.end(marker(0, coordinator_epoch=7))
    partition.refuses(
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        marker(1, coordinator_epoch=6),
        origin=COORDINATOR,
    )
    partition.end(marker(1, coordinator_epoch=7))
    assert partition.entry().coordinator_epoch == 7
