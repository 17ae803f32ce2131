"""Comparing what the metadata says with what is in the store, and both with the log (T27)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dohle.records.batch import CorruptBatch
from dohle.storage.files import ReadableFile
from dohle.storage.segment.batch_scan import scan_checked
from dohle.tiering.layout import INDEXES, LOG, MANIFEST, object_key
from dohle.tiering.segments import RemoteSegment, SegmentState
from dohle.tiering.store import ObjectStore, StoreError

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
    left = objects_without_record(known, objects, prefix)
    return found + [f"{key}: no record tells of this object" for key in left]


def objects_without_record(
    segments: Iterable[RemoteSegment], objects: Iterable[str], prefix: str = ""
) -> list[str]:
    """Return the keys of objects that belong to none of the segments that there are records of.

    A record is written before the objects. So nothing that is just being copied is among them if
    the objects were listed before the records were read.
    """
    owned = {object_key(each, suffix, prefix) for each in segments for suffix in _SUFFIXES}
    return sorted(set(objects) - owned)


def damage_of(
    segments: Iterable[RemoteSegment], store: ObjectStore, prefix: str = ""
) -> Iterator[str]:
    """Read all records that can be read from the tier; yield what is wrong, one sentence each."""
    for segment in segments:
        if segment.state is not _FINISHED:
            continue
        key = object_key(segment, LOG, prefix)
        try:
            check_batches(_StoredFile(store, key), segment)
        except (CorruptBatch, StoreError) as error:
            yield f"{key}: {error.args[0]}"


def check_batches(file: ReadableFile, segment: RemoteSegment) -> None:
    """Raise CorruptBatch if a log is not what was appended: checksums, sizes, order of offsets."""
    before = segment.start_offset - 1
    for _, _, first, last, *_ in scan_checked(file, 0, segment.size):
        if not before < first <= last <= segment.end_offset:
            raise CorruptBatch(f"offsets {first} to {last} come after {before}")
        before = last


class _StoredFile:
    """An object that is read in pieces."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key

    def read_at(self, position: int, size: int) -> bytes:
        return self._store.get(self._key, position, size)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        piece = self._store.get(self._key, position, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


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
