"""Reading a remote segment: positions from its indexes, batches by ranged reads (T12, T13).

All of it blocks, and runs in threads, on a segment and the local copies of its indexes.
"""

from __future__ import annotations

from typing import NamedTuple

from dohle.records.batch import MAGIC, CorruptBatch, batches
from dohle.storage.files import FileSystem
from dohle.storage.open_files import OpenFiles
from dohle.storage.segment.batch_scan import BatchHead, find_batch, scan_batches, scan_heads
from dohle.storage.segment.index import CorruptIndex, OffsetIndex, TimeIndex
from dohle.storage.segment.reader import TimestampedOffset
from dohle.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from dohle.tiering.index_cache import CachedIndexes
from dohle.tiering.layout import LOG, object_key
from dohle.tiering.segments import RemoteSegment
from dohle.tiering.store import ObjectStore, StoreError

#: Index entries are about so far apart: the batch that is looked for is not at the entry itself.
_SLACK_BYTES = 64 * 1024
#: So much of one partition is in memory at a time, unless a single batch is larger.
READ_BYTES_MAX = 4 * 1024 * 1024


class RemoteData(NamedTuple):
    """What was read of a segment."""

    records: bytes
    #: An offset at or behind the end of what was read, as close as the index can tell.
    upper: int
    #: Of transactions that overlap it, if they were asked for; and whether these are all.
    aborted: list[AbortedTransaction]
    is_complete: bool


class SegmentAt(NamedTuple):
    """A remote segment that can be read."""

    files: FileSystem
    store: ObjectStore
    segment: RemoteSegment
    indexes: CachedIndexes
    prefix: str

    def read(
        self, offset: int, max_bytes: int, *, whole_batch: bool, last: int | None = None
    ) -> RemoteData | None:
        """Return the batches from the one that holds ``offset`` on; None if all are before it.

        The last one may be cut. With ``whole_batch`` the first one is not, however large it is.
        Those behind the offset ``last`` are left out: after an election that has lost records, the
        log has others there.
        """
        last = self.segment.end_offset if last is None else last
        limit = min(max_bytes, READ_BYTES_MAX)
        log = _Window(self, limit + _SLACK_BYTES)
        index = self._offset_index()
        try:
            last_offset, position = index.lookup(offset)
            first_ends_at = last_offset if position else None
            head = find_batch(log, position, self.segment.size, offset, first_ends_at)
            self._check_passed(log, position, head, offset)
            if head is None or last < head.last_offset <= self.segment.end_offset:
                return None
            size = limit
            if head.size > limit:
                size = head.size if whole_batch else 0
            records = log.read_at(head.position, min(size, self.segment.size - head.position))
            records = self._checked(records, last)
            upper = index.first_offset_at_or_after(head.position + len(records))
        except (CorruptBatch, CorruptIndex, OSError) as error:
            raise StoreError(f"{self.segment.segment_id} cannot be read: {error}") from error
        upper = last + 1 if upper is None else min(upper, last + 1)
        aborted, is_complete = self.aborted(offset, upper)
        if last < self.segment.end_offset:
            aborted = [each for each in aborted if each.last_offset <= last]
            is_complete = False
        return RemoteData(records, upper, aborted, is_complete)

    def _check_passed(
        self, log: _Window, position: int, head: BatchHead | None, offset: int
    ) -> None:
        """Raise CorruptBatch if one was taken for older than ``offset`` because it is damaged.

        Offsets rise; and where none was found that holds the wanted one, checksums tell more.
        """
        end = self.segment.size if head is None else head.position + head.size
        is_gap = head is None or head.base_offset > offset
        before = self.segment.start_offset - 1
        for each in scan_heads(log, position, end):
            if each.base_offset <= before:
                raise CorruptBatch(f"offset {each.base_offset} comes after {before}")
            before = each.last_offset
            if is_gap:
                _, batch = next(scan_batches(log, each.position, each.position + each.size))
                batch.ensure_valid()

    def _checked(self, records: bytes, last: int) -> bytes:
        """Return the batches up to an offset; CorruptBatch if they are not those that were copied.

        Not every client looks at checksums, and offsets are not part of them.
        """
        position, before = 0, self.segment.start_offset - 1
        for batch in batches(records):
            first = batch.base_offset if batch.magic == MAGIC else batch.last_offset
            if not before < first <= batch.last_offset <= self.segment.end_offset:
                raise CorruptBatch(f"offsets {first} to {batch.last_offset} come after {before}")
            batch.ensure_valid()
            if batch.last_offset > last:
                return records[:position]
            before = batch.last_offset
            position += batch.size
        return records

    def aborted(self, offset: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that overlap a range, and whether these are all."""
        files, start = self.files, self.segment.start_offset
        index = TransactionIndex(files, self.indexes.txn, start, OpenFiles())
        try:
            return index.collect_aborted(offset, upper)
        except (CorruptIndex, OSError) as error:
            raise StoreError(f"{self.segment.segment_id} cannot be read: {error}") from error
        finally:
            index.close()

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampedOffset | None:
        """Return the first record from an offset on that is not older than asked."""
        times = TimeIndex(
            self.files, self.indexes.time, self.segment.start_offset, self.indexes.size
        )
        log, end = _Window(self, _SLACK_BYTES), self.segment.size
        try:
            floor = max(times.lookup(timestamp).offset, start_offset)
            _, position = self._offset_index().lookup(floor)
            for head in scan_heads(log, position, end):
                if head.max_timestamp < timestamp or head.last_offset < start_offset:
                    continue
                _, batch = next(scan_batches(log, head.position, head.position + head.size))
                batch.ensure_valid()
                for record in batch:
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        epoch = batch.partition_leader_epoch
                        return TimestampedOffset(record.timestamp, record.offset, epoch)
        except (CorruptBatch, CorruptIndex, OSError) as error:
            raise StoreError(f"{self.segment.segment_id} cannot be read: {error}") from error
        return None

    def _offset_index(self) -> OffsetIndex:
        size = self.indexes.size
        return OffsetIndex(self.files, self.indexes.offset, self.segment.start_offset, size)


class _Window:
    """A file as it is in the store, of which one piece at a time is in memory."""

    def __init__(self, at: SegmentAt, size: int) -> None:
        self._store = at.store
        self._key = object_key(at.segment, LOG, at.prefix)
        self._end = at.segment.size
        self._size = size
        self._data, self._position = b"", 0

    def read_at(self, position: int, size: int) -> bytes:
        """Return what is in the window, which is moved if it is not all there."""
        size = max(0, min(size, self._end - position))
        begin = position - self._position
        if begin < 0 or begin + size > len(self._data):
            wanted = min(max(size, self._size), self._end - position)
            self._data, self._position = self._store.get(self._key, position, wanted), position
            if len(self._data) != wanted:
                raise StoreError(f"{self._key} is shorter than the metadata says")
            begin = 0
        return self._data[begin : begin + size]

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill a buffer."""
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)
