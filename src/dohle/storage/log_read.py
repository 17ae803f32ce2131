"""Reading a log: a slice of one segment, bounded by what the reader may see.

Nothing is decoded: a lookup in the sparse index and a short walk over batch heads find the position
of the first batch, and a second lookup that of the first batch that the reader may not see. For
readers of committed records the aborted transactions of the range come along. ``read`` serves all
readers; ``read_soon`` is the fast path for what most of them ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.storage.log_values import FetchData, Isolation
from dohle.storage.segment.reader import TimestampedOffset
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segment_file import LogSlice
from dohle.storage.segment.segments import Segments
from dohle.storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from dohle.storage.log import Log

# Looking up a member of an enum is slow.
_LOG_END, _HIGH_WATERMARK = Isolation.LOG_END, Isolation.HIGH_WATERMARK
_TXN_COMMITTED = Isolation.TXN_COMMITTED


class OffsetMovedToTier(KafkaError):
    """An offset of the log that is in the remote tier, and no longer here."""

    def __init__(self, log: Log, offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            f"{log.partition}: offset {offset} is below {log.local_log_start_offset}, where what is"
            " on this disk begins",
        )


def read(
    log: Log,
    start_offset: int,
    max_bytes: int,
    isolation: Isolation = _LOG_END,
    *,
    min_one_batch: bool = False,
) -> FetchData:
    """Find the bytes from the batch that holds ``start_offset`` on.

    ``min_one_batch`` returns a first batch whole even if it is larger than ``max_bytes``.
    """
    log.disk.ensure_online()
    if not log.log_start_offset <= start_offset <= log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.partition}: offset {start_offset} is not within"
            f" {log.log_start_offset} to {log.log_end_offset}",
        )
    if start_offset < log.segments.first.base_offset:
        raise OffsetMovedToTier(log, start_offset)
    try:
        return _read_segments(
            log.segments,
            log.log_end_offset,
            start_offset,
            max_bytes,
            _upper_bound(log, isolation),
            min_one_batch=min_one_batch,
            committed=isolation is _TXN_COMMITTED,
        )
    except OSError as error:
        raise log.disk.failed_to_read(f"reading {log.partition}", error) from error


def _upper_bound(log: Log, isolation: Isolation) -> int:
    if isolation is _HIGH_WATERMARK:
        return log.high_watermark
    if isolation is _TXN_COMMITTED:
        return log.last_stable_offset
    return log.log_end_offset


def read_soon(
    log: Log, start_offset: int, max_bytes: int, isolation: Isolation
) -> LogSlice | bytes | None:
    """Find what ``read`` with ``min_one_batch`` does: the fast path of a fetch.

    It serves large batches, and small amounts of data, which it returns as bytes; and only readers
    that may see all that is committed and do not ask for aborted transactions. Returns None in all
    other cases. An ``OSError`` is left to ``read``, which runs into the same.
    """
    log.disk.ensure_online()
    bound = log.log_end_offset if isolation is _LOG_END else log.high_watermark
    if not log.log_start_offset <= start_offset < bound:
        return None
    segments = log.segments
    segment = segments.floor(start_offset)
    if segment is None:
        return None
    if isolation is _TXN_COMMITTED and (
        log.last_stable_offset != bound
        or segment is not segments.active
        or not segment.indexes.txn.is_empty
    ):
        return None
    end = segment.log_file.size
    if bound != log.log_end_offset:
        end = _visible_end(log, segment, bound)
    reader = segment.reader
    large = reader.large_slice(start_offset, max_bytes, end)
    return reader.small_bytes(start_offset, max_bytes, end) if large is None else large


def _visible_end(log: Log, segment: LogSegment, bound: int) -> int:
    """Return where the first batch of a segment begins that is not below ``bound``.

    On a leader with followers the high watermark is nearly always behind the log end, and many
    readers ask before it advances: so the last answer is cached.
    """
    known, generation = log.known_end, log.files.generation
    if known is not None and known[0] is segment and known[1:3] == (bound, generation):
        return known[3]
    head = segment.reader.find(bound)
    end = segment.size if head is None else head.position
    # Not cached at the end of the segment, where a batch may be appended soon.
    log.known_end = None if head is None else (segment, bound, generation, end)
    return end


def readable_bytes(log: Log, start_offset: int, isolation: Isolation, at_most: int) -> int | None:
    """Tell how much there is to read from an offset on, by positions: nothing is read.

    None if it is no use to wait for more: what follows is in a later segment, and a read ends with
    its segment; or the offset is not in the log. What the reader may not see yet it waits for: a
    consumer may come to a follower with what it knows from the leader, whose high watermark gets
    there later. (Kafka answers at once, and the consumer asks again and again.)
    """
    log.disk.ensure_online()
    bound = _upper_bound(log, isolation)
    if bound <= start_offset <= log.log_end_offset:
        return 0
    segment = log.segments.floor(start_offset)
    if (
        not log.log_start_offset <= start_offset < bound
        or segment is None
        or segment is not log.segments.floor(bound)
    ):
        return None
    if at_most <= 1:
        return at_most
    try:
        start = _start_position(log, segment, start_offset)
        end = segment.size
        if bound != log.log_end_offset:
            end = _visible_end(log, segment, bound)
    except OSError as error:
        raise log.disk.failed(f"reading {log.partition}", error) from error
    return min(max(0, end - start), at_most)


def _start_position(log: Log, segment: LogSegment, offset: int) -> int:
    """Return where the batch begins that holds an offset, which is below what can be seen.

    Whoever waits is mostly at the same offset as the others, and asks again with each append.
    """
    known, generation = log.known_start, log.files.generation
    if known is not None and known[0] is segment and known[1:3] == (offset, generation):
        return known[3]
    head = segment.reader.find(offset)
    if head is None:
        return segment.size
    log.known_start = segment, offset, generation, head.position
    return head.position


def _read_segments(
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


def find_by_timestamp(log: Log, timestamp: int) -> TimestampedOffset | None:
    """Return the first record from the log start on that is not older than ``timestamp``.

    A segment whose only such record is below the log start does not end the search (in Kafka 4.2 it
    does, and nothing is found).
    """
    with log.disk.guarding_read(f"reading {log.partition}"):
        for segment in log.segments:
            if segment.indexes.max_timestamp.timestamp >= timestamp:
                found = segment.reader.find_by_timestamp(timestamp, log.log_start_offset)
                if found is not None:
                    return found
    return None


def find_max_timestamp(log: Log) -> TimestampedOffset | None:
    """Return the record with the largest timestamp, the first of equals."""
    with log.disk.guarding_read(f"reading {log.partition}"):
        segment = max(log.segments, key=lambda one: one.indexes.max_timestamp.timestamp)
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
