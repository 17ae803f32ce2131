"""Comparing what the metadata says with what is in the store, and both with the log (T27)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dohle.tiering.layout import INDEXES, LOG, MANIFEST, object_key
from dohle.tiering.segments import RemoteSegment, SegmentState

_SUFFIXES = (LOG, INDEXES, MANIFEST)
_FINISHED = SegmentState.COPY_SEGMENT_FINISHED


def problems_of(
    segments: Iterable[RemoteSegment],
    objects: Mapping[str, int],
    log_start_offset: int,
    local_log_start_offset: int,
    prefix: str = "",
) -> list[str]:
    """Return what is wrong with a partition, one sentence each; ``objects`` are sizes by key."""
    known = sorted(segments, key=lambda each: (each.start_offset, -each.end_offset))
    copied = [each for each in known if each.state is _FINISHED]
    found = []
    for segment in copied:
        found += _problems_of_segment(segment, objects, prefix)
    found += _holes(copied, log_start_offset, local_log_start_offset)
    owned = {object_key(each, suffix, prefix) for each in known for suffix in _SUFFIXES}
    found += [f"{key}: no record tells of this object" for key in sorted(set(objects) - owned)]
    return found


def _problems_of_segment(
    segment: RemoteSegment, objects: Mapping[str, int], prefix: str
) -> list[str]:
    found = []
    for suffix in _SUFFIXES:
        key = object_key(segment, suffix, prefix)
        size = objects.get(key)
        if size is None:
            found.append(f"{key}: is missing")
        elif suffix == LOG and size != segment.size:
            found.append(f"{key}: has {size} bytes, and not {segment.size}")
    return found


def _holes(copied: list[RemoteSegment], start: int, end: int) -> list[str]:
    found, position = [], start
    for segment in copied:
        if position >= end:
            break
        if segment.start_offset > position:
            upper = min(segment.start_offset, end)
            found.append(f"offsets {position} to {upper - 1} are in no tier")
        position = max(position, segment.end_offset + 1)
    if position < end:
        found.append(f"offsets {position} to {end - 1} are in no tier")
    return found
