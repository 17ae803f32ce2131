"""What a round works on: the log's segments as they are when it begins, in groups.

All of it runs in the round's thread, as a log may have thousands of segments. Closed segments stay
as they are: if one is removed or moved meanwhile, the round is given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dohle.storage.cleaning.grouping import SegmentSize, group_segments
from dohle.storage.cleaning.keeping import LastRecord
from dohle.storage.cleaning.reading import Source
from dohle.storage.config import LogConfig
from dohle.storage.files import FileSystem
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.segment.segment import LogSegment


class Group(NamedTuple):
    """Segments that become one."""

    segments: tuple[LogSegment, ...]
    sources: tuple[Source, ...]


def sources_of(segments: Sequence[LogSegment], end_offset: int) -> list[Source]:
    """Return the segments of a log as sources; the last of them ends at an offset."""
    ends = [segment.base_offset for segment in segments[1:]]
    ends.append(end_offset)
    return [
        Source(s.base_offset, end, s.path, s.size, s.indexes.txn.path)
        for s, end in zip(segments, ends, strict=True)
    ]


def last_records(producers: Mapping[int, ProducerEntry]) -> dict[int, LastRecord]:
    """Return what cleaning has to know of a log's active producers."""
    return {
        producer_id: LastRecord(
            entry.producer_epoch, entry.batches[-1].last_offset if entry.batches else None
        )
        for producer_id, entry in producers.items()
    }


def plan_groups(
    fs: FileSystem,
    segments: Sequence[LogSegment],
    sources: Sequence[Source],
    map_end_offset: int,
    uncleanable_offset: int,
    config: LogConfig,
) -> list[Group]:
    """Group all segments that begin below the end of the map."""
    sizes = [
        SegmentSize(
            s.base_offset,
            s.size,
            _size_of(fs, s.indexes.offset.path),
            _size_of(fs, s.indexes.time.path),
        )
        for s in segments
        if s.base_offset < map_end_offset
    ]
    groups, at = [], 0
    for count in group_segments(
        sizes, uncleanable_offset, config.segment_bytes, config.segment_index_bytes
    ):
        groups.append(Group(tuple(segments[at : at + count]), tuple(sources[at : at + count])))
        at += count
    return groups


def _size_of(fs: FileSystem, path: str) -> int:
    try:
        return fs.stat(path).size
    except FileNotFoundError:
        # Retention has taken its segment meanwhile, or it is made anew when it is needed.
        return 0
