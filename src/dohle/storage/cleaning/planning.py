"""What a round works on: the log's segments as they are when it begins, in groups.

All of it runs in the round's thread, as a log may have thousands of segments. Closed segments stay
as they are: if one is removed or moved meanwhile, the round is given up.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dohle.storage.cleaning.grouping import SegmentSize, group_segments
from dohle.storage.cleaning.keeping import LastRecord
from dohle.storage.cleaning.reading import ClosedSegment
from dohle.storage.config import LogConfig
from dohle.storage.files import FileSystem
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.segment.segment import LogSegment


class SegmentGroup(NamedTuple):
    """Segments that become one."""

    segments: tuple[LogSegment, ...]
    sources: tuple[ClosedSegment, ...]


def sources_of(segments: Sequence[LogSegment], end_offset: int) -> list[ClosedSegment]:
    """Return the segments of a log as sources; the last of them ends at an offset."""
    ends = [segment.base_offset for segment in segments[1:]]
    ends.append(end_offset)
    return [
        ClosedSegment(s.base_offset, end, s.path, s.size, s.indexes.txn.path)
        for s, end in zip(segments, ends, strict=True)
    ]


class LastRecords(NamedTuple):
    """What cleaning has to know of a log's active producers, by columns.

    There may be very many of them: objects of their own would let the collector look at everything
    that the node has, and take long to be sent.
    """

    producer_ids: array[int]
    producer_epochs: array[int]
    #: Where the last data batch of each ended; -1 if only markers are known.
    last_data_offsets: array[int]

    def by_producer(self) -> Callable[[int], LastRecord | None]:
        """Return what finds that of a producer."""
        places = {producer_id: place for place, producer_id in enumerate(self.producer_ids)}

        def find(producer_id: int) -> LastRecord | None:
            place = places.get(producer_id)
            if place is None:
                return None
            offset = self.last_data_offsets[place]
            return LastRecord(self.producer_epochs[place], None if offset < 0 else offset)

        return find


NO_PRODUCERS = LastRecords(array("q"), array("h"), array("q"))


def last_records(producers: Mapping[int, ProducerEntry]) -> LastRecords:
    """Return the last record of each producer, as it is at some moment of this call.

    It may be called in another thread than that of the log. A copy in one go would keep the log's
    own thread waiting.
    """
    ids, epochs, offsets = array("q"), array("h"), array("q")
    for producer_id in tuple(producers):
        entry = producers.get(producer_id)
        if entry is not None:
            ids.append(producer_id)
            epochs.append(entry.producer_epoch)
            offsets.append(entry.last_data_offset)
    return LastRecords(ids, epochs, offsets)


def plan_groups(
    fs: FileSystem,
    segments: Sequence[LogSegment],
    sources: Sequence[ClosedSegment],
    map_end_offset: int,
    uncleanable_offset: int,
    config: LogConfig,
) -> list[SegmentGroup]:
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
        groups.append(
            SegmentGroup(tuple(segments[at : at + count]), tuple(sources[at : at + count]))
        )
        at += count
    return groups


def _size_of(fs: FileSystem, path: str) -> int:
    try:
        return fs.stat(path).size
    except FileNotFoundError:
        # Retention has taken its segment meanwhile, or it is made anew when it is needed.
        return 0
