"""Finding what a segment holds: by offset, by timestamp, or one batch after the other.

An index entry says where to begin, and a short walk over the heads of batches does the rest. If an
entry turns out to be wrong, the indexes are rebuilt. ``large_slice`` and ``small_bytes`` are the
fast paths of a fetch: they return what ``find`` and ``slice`` would, or None.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from dohle.records.batch import (
    BATCH_HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    Batch,
    CorruptBatch,
)
from dohle.storage.files import File
from dohle.storage.segment.batch_scan import (
    BatchHead,
    ProducerHead,
    find_batch,
    read_small,
    scan_batches,
    scan_heads,
    scan_producer_heads,
)
from dohle.storage.segment.index import CorruptIndex
from dohle.storage.segment.indexes import SegmentIndexes
from dohle.storage.segment.segment_file import LogSlice, SegmentFile

# Batches are taken to be large where two index entries are this far apart.
_LARGE_BATCH_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record's offset with its own timestamp and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class SegmentReader:
    """The lookups in one segment."""

    __slots__ = (
        "_base_offset",
        "_indexes",
        "_log_file",
    )

    def __init__(self, log_file: SegmentFile, indexes: SegmentIndexes, base_offset: int) -> None:
        self._log_file = log_file
        self._indexes = indexes
        self._base_offset = base_offset

    # By offset

    def find(self, offset: int) -> BatchHead | None:
        """Return the first batch that ends at or behind ``offset``; None if all end before it."""
        indexes = self._indexes
        if not indexes.loaded:
            indexes.load()
        file = self._log_file.intact_file()
        if (found := self._find_large(offset)) is not None:
            return BatchHead(*found)
        try:
            return self._find(file, offset)
        except CorruptIndex as error:
            # A file that was cut is not an index that is wrong.
            self._log_file.ensure_intact()
            indexes.rebuild(str(error))
        except CorruptBatch:
            self._log_file.ensure_intact()
            raise
        try:
            return self._find(file, offset)
        except CorruptIndex as error:
            raise CorruptBatch(f"{self._log_file.path}: {error}") from error

    def _find(self, file: File, offset: int) -> BatchHead | None:
        last_offset, position = self._indexes.offset.lookup(offset)
        end = self._log_file.size
        if position == 0:
            return find_batch(file, 0, end, offset)
        try:
            return find_batch(file, position, end, offset, last_offset)
        except CorruptBatch as error:
            raise CorruptIndex(str(error)) from error

    def _find_large(self, offset: int) -> tuple[int, int, int, int, int, int, int] | None:
        """Return the fields of the ``BatchHead`` that holds ``offset`` if it has an index entry.

        Large batches all have one, so that this takes one small read. None if the offset is not in
        the batch of the first entry at or behind it. The indexes must be loaded.
        """
        entry = self._indexes.offset.large_batch(offset, _LARGE_BATCH_BYTES)
        if entry is None:
            return None
        last_offset, position = entry
        log_file = self._log_file
        try:
            fields = BATCH_HEADER.unpack(log_file.file.read_at(position, HEADER_SIZE))
        except struct.error:
            return None
        base_offset, length, epoch, magic, _, _, delta, _, max_timestamp, _, _, _, _ = fields
        size = length + LOG_OVERHEAD
        if (
            magic != MAGIC
            or base_offset > offset
            or base_offset + delta != last_offset
            or not HEADER_SIZE <= size <= log_file.size - position
        ):
            return None
        return position, base_offset, last_offset, size, magic, max_timestamp, epoch

    def slice(self, head: BatchHead, max_bytes: int, end: int) -> LogSlice:
        """Return at most ``max_bytes`` from a batch's start on, not reaching behind ``end``."""
        position = head.position
        size = min(max_bytes, end - position)
        return LogSlice(self._log_file.file, position, size if size > 0 else 0, head.base_offset)

    def large_slice(self, offset: int, max_bytes: int, end: int) -> LogSlice | None:
        """Return the slice to read from ``offset`` on, at least a batch, if that batch is large.

        It does not reach behind the position ``end``, at which a batch begins or the segment ends.

        Returns None when that is not known without ``find``.
        """
        found = self._find_large(offset) if self._indexes.loaded else None
        if found is None:
            return None
        position, base_offset, _, size, _, _, _ = found
        if size < max_bytes:
            size = end - position
            if size > max_bytes:
                size = max_bytes
        return LogSlice(self._log_file.intact_file(), position, size, base_offset)

    def small_bytes(self, offset: int, max_bytes: int, end: int) -> bytes | None:
        """Return the bytes from ``offset`` on, at least a batch, if one small read is enough.

        It does not reach behind the position ``end``, at which a batch begins or the segment ends.

        Returns None when that is not known without ``find``.
        """
        indexes, log_file = self._indexes, self._log_file
        if not indexes.loaded:
            return None
        last_offset, position = indexes.offset.lookup(offset)
        first_ends_at = last_offset if position else None
        file = log_file.intact_file()
        return read_small(file, position, end, offset, max_bytes, first_ends_at)

    def next_offset(self) -> int:
        """Return the offset behind the last batch, by a walk from the last index entry."""
        self._indexes.load()
        last = deque(self.heads_from(self._indexes.offset.last_entry.offset), maxlen=1)
        return last[0].last_offset + 1 if last else self._base_offset

    # One after the other

    def heads(self, position: int = 0) -> Iterator[BatchHead]:
        """Yield the heads of the batches from a position on."""
        return scan_heads(self._log_file.file, position, self._log_file.size)

    def heads_from(self, offset: int) -> Iterator[BatchHead]:
        """Yield the heads of the batches that end at or behind ``offset``."""
        head = self.find(offset)
        return iter(()) if head is None else self.heads(head.position)

    def producer_heads_before(
        self, offset: int, entries: int
    ) -> tuple[int, Iterator[ProducerHead]]:
        """Return the heads from so many index entries before ``offset`` on, and their position."""
        self._indexes.load()
        position = self._indexes.offset.position_before(offset, entries)
        log_file = self._log_file
        return position, scan_producer_heads(log_file.file, position, log_file.size)

    def batches(self, position: int = 0) -> Iterator[tuple[int, Batch]]:
        """Yield (position, batch); a batch is valid until the next step."""
        return scan_batches(self._log_file.file, position, self._log_file.size)

    # By timestamp

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampedOffset | None:
        """Return the first record from ``start_offset`` on that is not older than asked."""
        self._indexes.load()
        floor = self._indexes.time.lookup(timestamp)
        for head in self.heads_from(max(floor.offset, start_offset)):
            if head.max_timestamp < timestamp or head.last_offset < start_offset:
                continue
            batch = self._read(head)
            for record in batch:
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampedOffset(
                        record.timestamp, record.offset, batch.partition_leader_epoch
                    )
        return None

    def find_max_timestamp(self) -> TimestampedOffset | None:
        """Return the first record that has the segment's largest timestamp."""
        maximum = self._indexes.max_timestamp
        for head in self.heads_from(maximum.offset):
            if head.max_timestamp != maximum.timestamp:
                continue
            batch = self._read(head)
            for record in batch:
                if record.timestamp == maximum.timestamp:
                    return TimestampedOffset(
                        record.timestamp, record.offset, batch.partition_leader_epoch
                    )
        return None

    def _read(self, head: BatchHead) -> Batch:
        end = head.position + head.size
        _, batch = next(scan_batches(self._log_file.file, head.position, end))
        return batch
