"""Reading the segments of a log for cleaning: by path, in pieces of whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dohle.records.batch import LOG_OVERHEAD, Batch, CorruptBatch, read_batch
from dohle.records.control import ControlRecordType, decode_control_key
from dohle.storage.cleaning.round_values import CleaningAborted
from dohle.storage.files import File, FileSystem
from dohle.storage.open_files import OpenFiles
from dohle.storage.segment.batch_scan import batch_size_at
from dohle.storage.segment.transaction_index import AbortedTransaction, TransactionIndex


class ClosedSegment(NamedTuple):
    """A closed segment, which does not change while its log is not truncated."""

    base_offset: int
    #: Where the next segment begins.
    end_offset: int
    path: str
    size: int
    txn_index_path: str


class StopFlag:
    """Set on one thread, looked at on another."""

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False


class CleaningPace:
    """How fast a job may go on, and whether it may at all."""

    def __init__(
        self, io_buffer_bytes: int, throttle: Callable[[int], None], stop: StopFlag
    ) -> None:
        self.buffer_bytes = max(io_buffer_bytes // 2, 1024)
        self._throttle = throttle
        self._stop = stop

    def done(self, size: int) -> None:
        """Count bytes that were read or written; CleaningAborted if it was stopped."""
        if self._stop.is_set:
            raise CleaningAborted("it was stopped")
        self._throttle(size)


def whole_batches(
    file: File, start: int, end: int, buffer_bytes: int
) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of ``file[start:end]`` in pieces of whole batches, with their positions.

    They are views of memory that is reused: each is valid until the next step. A batch that is
    larger than the buffer gets one of its own size. CorruptBatch if there is anything else.
    """
    view = memoryview(bytearray(buffer_bytes))
    position = start
    while position < end:
        want = min(len(view), end - position)
        if file.read_into(position, view[:want]) < want:
            raise CorruptBatch(f"the file ends before position {position + want}", position)
        at = 0
        while want - at >= LOG_OVERHEAD:
            size = batch_size_at(view, at, position + at, end)
            if size > want - at:
                break
            at += size
        if at:
            yield position, view[:at]
            position += at
            continue
        if want < LOG_OVERHEAD:
            raise CorruptBatch(f"the file ends within the batch at position {position}", position)
        view = memoryview(bytearray(batch_size_at(view, 0, position, end)))


class BatchOrder:
    """Looks at whether the batches of a segment follow each other, which no checksum covers."""

    def __init__(self, source: ClosedSegment) -> None:
        self._source = source
        self._previous = source.base_offset - 1

    def batches(self, piece: memoryview) -> Iterator[tuple[int, Batch]]:
        """Yield the batches of whole ones, with their positions in them."""
        at, previous, end_offset = 0, self._previous, self._source.end_offset
        while at < len(piece):
            batch = read_batch(piece, at)
            last_offset = batch.last_offset
            if not previous < last_offset < end_offset:
                raise CorruptBatch(f"offset {last_offset} is out of order")
            yield at, batch
            at += batch.size
            previous = last_offset
        self._previous = previous


def control_type(batch: Batch) -> ControlRecordType | None:
    """Return what a control batch says; None if it has no record any more."""
    for record in batch:
        return decode_control_key(record.key)
    return None


class TransactionIndexes:
    """The transaction indexes of a log's segments, read on a thread of its own."""

    def __init__(self, fs: FileSystem, sources: Sequence[tuple[int, str]]) -> None:
        """Take base offsets and paths; few segments have such a file."""
        open_files = OpenFiles(2)
        self._indexes = [
            TransactionIndex(fs, path, base_offset, open_files)
            for base_offset, path in sources
            if fs.exists(path)
        ]

    def of_segments(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return all entries of the segments whose base offsets are in a range."""
        return [
            entry
            for index in self._indexes
            if start <= index.base_offset < end
            for entry in index.entries()
        ]

    def between(self, base_offset: int, start: int, end: int) -> list[AbortedTransaction]:
        """Return those with data in a range of offsets, which begins in the segment given."""
        found: list[AbortedTransaction] = []
        for index in self._indexes:
            if index.base_offset < base_offset:
                continue
            some, is_complete = index.collect_aborted(start, end)
            found += some
            if is_complete:
                break
        return found
