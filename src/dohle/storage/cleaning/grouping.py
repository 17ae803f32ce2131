"""Which segments are cleaned into one: neighbours, as long as limits hold. Pure.

The sizes are those before cleaning, so a group never becomes too large. It gets the base offset of
its first segment, and all its offsets must fit into the four bytes of an index entry.

Unlike in Kafka, the number of segments in a group has a limit: if a round is given up, their files
are renamed between two appends. What is left small is merged by the next rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dohle.storage.segment.index import MAX_RELATIVE_OFFSET

#: How many segments are renamed at a time: that takes about three milliseconds.
SEGMENTS_MAX = 32


class SegmentSize(NamedTuple):
    """What a segment takes."""

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SegmentSize], end_offset: int, log_bytes_max: int, index_bytes_max: int
) -> list[int]:
    """Return how many segments each group has.

    ``end_offset`` is where the last one ends at the latest. One that is too large is on its own.
    """
    groups: list[int] = []
    first = log_bytes = index_bytes = time_index_bytes = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        log_bytes += segment.log_bytes
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        fits = (
            log_bytes <= log_bytes_max
            and index_bytes <= index_bytes_max
            and time_index_bytes <= index_bytes_max
            and (
                segment.log_bytes == 0
                or following - 1 - segments[first].base_offset <= MAX_RELATIVE_OFFSET
            )
        )
        if groups and fits and groups[-1] < SEGMENTS_MAX:
            groups[-1] += 1
            continue
        groups.append(1)
        first = number
        log_bytes, index_bytes, time_index_bytes = segment[1:]
    return groups
