"""Finding what a fetch returns: a slice of one segment, and the aborted transactions in it.

Nothing is decoded: a lookup in the sparse index and a short walk over batch heads find the position
of the first batch, and a second lookup that of the first batch that the reader may not see.
"""

from __future__ import annotations

from dohle.storage.log_values import FetchData
from dohle.storage.segment.reader import TimestampedOffset
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segment_file import LogSlice
from dohle.storage.segment.segments import Segments
from dohle.storage.segment.transaction_index import AbortedTransaction


def read_segments(
    segments: Segments,
    log_end_offset: int,
    start_offset: int,
    max_bytes: int,
    bound: int,
    *,
    min_one_batch: bool,
    committed: bool,
) -> FetchData:
    """Find the bytes from the batch that holds ``start_offset`` on, up to the offset ``bound``.

    ``committed`` asks for the aborted transactions too.
    """
    found = segments.from_offset(start_offset) if start_offset < bound else ()
    for segment in found:
        if segment.base_offset >= bound:
            break
        head = segment.reader.find(start_offset)
        if head is None:
            continue
        limit = head.size if min_one_batch and head.size > max_bytes else max_bytes
        end = segment.size if bound >= log_end_offset else _end_position(segment, bound)
        piece = segment.reader.slice(head, limit, end)
        if piece.size == 0:
            break
        aborted = None
        if committed:
            upper = _offset_behind(segments, segment, piece, log_end_offset)
            aborted = aborted_transactions(segments, start_offset, upper)
        return FetchData(piece, limit < head.size, aborted)
    return FetchData(aborted_transactions=[] if committed else None)


def find_by_timestamp(
    segments: Segments, timestamp: int, log_start_offset: int
) -> TimestampedOffset | None:
    """Return the first record from the log start on that is not older than ``timestamp``.

    A segment whose only such record is below the log start does not end the search (in Kafka 4.2 it
    does, and nothing is found).
    """
    for segment in segments:
        if segment.indexes.max_timestamp.timestamp >= timestamp:
            found = segment.reader.find_by_timestamp(timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: Segments) -> TimestampedOffset | None:
    """Return the record with the largest timestamp, the first of equals."""
    segment = max(segments, key=lambda one: one.indexes.max_timestamp.timestamp)
    return segment.reader.find_max_timestamp()


def _end_position(segment: LogSegment, bound: int) -> int:
    """Return where in a segment the first batch begins that a reader may not see."""
    head = segment.reader.find(bound)
    return segment.size if head is None else head.position


def _offset_behind(
    segments: Segments, segment: LogSegment, piece: LogSlice, log_end_offset: int
) -> int:
    """Return an offset at or behind the end of the slice, as close as the index can tell."""
    upper = segment.indexes.offset.first_offset_at_or_after(piece.position + piece.size)
    if upper is not None:
        return upper
    following = segments.from_offset(segment.base_offset)[1:]
    return following[0].base_offset if following else log_end_offset


def aborted_transactions(
    segments: Segments, start_offset: int, upper: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in ``[start_offset, upper)``."""
    found: list[AbortedTransaction] = []
    for segment in segments.from_offset(start_offset):
        entries, complete = segment.indexes.txn.collect_aborted(start_offset, upper)
        found.extend(entries)
        if complete:
            break
    return found
