"""Splits ranges of offsets into tasks: one per partition, or several for a large one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from dohle.core.ids import TopicName, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads of one partition: ``start`` up to, not including, ``end``."""

    topic: TopicName
    partition: int
    #: In text form; empty if the brokers are too old to have ids.
    topic_id: str
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose offsets these are."""
        return TopicPartition(self.topic, self.partition)


def split_ranges(
    ranges: Mapping[TopicPartition, tuple[int, int]],
    topic_ids: Mapping[TopicName, str],
    *,
    partitions_min: int | None = None,
    records_max: int | None = None,
) -> list[OffsetRange]:
    """Split ranges into tasks.

    No piece has more than ``records_max`` offsets, and if there would be fewer pieces than
    ``partitions_min``, the larger ones are split further. Without both there is one for each range.
    """
    sizes = {partition: end - start for partition, (start, end) in ranges.items() if end > start}
    pieces = {
        partition: -(-size // records_max) if records_max else 1
        for partition, size in sizes.items()
    }
    total = sum(sizes.values())
    if partitions_min and sum(pieces.values()) < partitions_min:
        for partition, size in sizes.items():
            share = round(size * partitions_min / total)
            pieces[partition] = min(size, max(pieces[partition], share))
    work: list[OffsetRange] = []
    for partition, size in sorted(sizes.items()):
        start = ranges[partition][0]
        topic, number = partition
        count = pieces[partition]
        cuts = [start + size * index // count for index in range(count + 1)]
        work += [
            OffsetRange(topic, number, topic_ids.get(topic, ""), begin, end)
            for begin, end in pairwise(cuts)
        ]
    return work
