"""One segment of a log: a ``.log`` file and its indexes, from a base offset to the next segment's.

The file holds batches exactly as they came over the wire. An index entry is added for a batch when
more than ``index.interval.bytes`` were appended since the last entry, counted before the batch
itself, so the first batch of a segment never has one. Only the log's owner appends; a closed
segment changes no more, except by truncation.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dohle.records.batch import (
    BATCH_HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    Batch,
    CorruptBatch,
    RecordBatch,
)
from dohle.storage.config import LogConfig
from dohle.storage.files import Buffer, File, file_name, join
from dohle.storage.log_context import LogContext
from dohle.storage.segment.batch_scan import (
    BatchHead,
    find_batch,
    read_small,
    scan_batches,
    scan_checked,
    scan_heads,
)
from dohle.storage.segment.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from dohle.storage.segment.index import (
    MAX_RELATIVE_OFFSET,
    CorruptIndex,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from dohle.storage.segment.transaction_index import TransactionIndex

logger = logging.getLogger("dohle.storage")

# Batches are taken to be large where two index entries are this far apart.
_LARGE_BATCH_BYTES = 8 * 1024
# A segment that has this size, and is written in large pieces, has as much reserved on the disk
# ahead of it: writing is a tenth cheaper if the file system finds its room at once.
RESERVED_BYTES = 8 * 1024 * 1024
_RESERVING_WRITE_BYTES_MIN = 256 * 1024


class LogSlice(NamedTuple):
    """A run of bytes in a segment file that begins with a whole batch; the last may be cut."""

    file: File
    position: int
    size: int
    base_offset: int

    def read(self) -> bytes:
        """Copy the bytes out; the network path hands the slice to sendfile instead."""
        return self.file.read_at(self.position, self.size)


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record's offset with its own timestamp and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class Recovered(NamedTuple):
    """What a segment's recovery found."""

    end_offset: int
    #: Offsets are missing between its batches, as after a cleaning, here or at the leader's.
    has_gaps: bool


class LogSegment:
    """A segment, open for reading; the last one of a log also for appending."""

    def __init__(
        self,
        context: LogContext,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self._fs = fs = context.fs
        self._clock = context.clock
        self._index_memory = context.index_memory
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.jitter_ms = jitter_ms
        self._index_interval = config.index_interval_bytes
        self._file: File | None = None
        self._unwritten: list[Buffer] = []
        self._unwritten_at = 0
        self._reserved_end = RESERVED_BYTES
        self._bytes_since_index_entry = 0
        self._indexes_loaded = False
        self._max_timestamp: TimestampOffset | None = None
        self._first_batch_timestamp: int | None = None
        self._created_ms = context.clock.now_ms()

        def path(kind: str) -> str:
            return join(directory, segment_file_name(base_offset, kind + suffix))

        self.path = path(LOG_SUFFIX)
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(fs, path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(fs, path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.txn_index = TransactionIndex(fs, path(TXN_INDEX_SUFFIX), base_offset)

    @classmethod
    def create(
        cls,
        context: LogContext,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        jitter_ms: int = 0,
    ) -> LogSegment:
        """Make the files of a new, empty segment; leftovers of the same name are removed."""
        segment = cls(context, directory, base_offset, config, size=0, jitter_ms=jitter_ms)
        segment.txn_index.delete()
        segment.offset_index.create()
        segment.time_index.create()
        file = context.fs.open(segment.path, write=True, create=True)
        segment._file = file
        file.truncate(0)
        if config.preallocate:
            file.allocate(config.segment_bytes)
        segment._max_timestamp = TimestampOffset(-1, base_offset)
        return segment

    @property
    def file(self) -> File:
        """The ``.log`` file, opened when it is first needed; what was unwritten is in it."""
        if self._file is None:
            self._file = self._fs.open(self.path, write=True)
        if self._unwritten:
            self.write_appends()
        return self._file

    # Appending

    def can_hold(self, offset: int) -> bool:
        """Tell whether an offset fits the four bytes an index entry has for it."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def should_roll(
        self, config: LogConfig, size: int, max_timestamp: int, last_offset: int
    ) -> bool:
        """Tell whether ``size`` more bytes have to go to a new segment.

        Ages are differences between record timestamps; only a segment whose first batch has none
        is measured by the clock.
        """
        if (
            self.size > config.segment_bytes - size
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        ):
            return True
        if not self._indexes_loaded:
            self._load_indexes()
        if self.offset_index.is_full or self.time_index.is_full:
            return True
        if self.size == 0:
            return False
        if (first := self._first_batch_timestamp) is None:
            head = next(scan_heads(self.file, 0, self.size), None)
            first = self._first_batch_timestamp = -1 if head is None else head.max_timestamp
        age_ms = max_timestamp - first if first >= 0 else self._clock.now_ms() - self._created_ms
        return age_ms > config.segment_ms - self.jitter_ms

    def append(self, batches: Sequence[Batch], data: Buffer, *, defer_write: bool = False) -> None:
        """Write the batches' bytes at the end and index them.

        ``defer_write`` leaves the writing to ``write_appends``, which writes all of it with one
        call. Until then the bytes must stay as they are; whatever needs the file writes them first.
        """
        if defer_write:
            at = 0
            for batch in batches:
                size = batch.size
                self.defer_write(data[at : at + size], batch.last_offset, batch.max_timestamp)
                at += size
            return
        position = self.size
        self.file.write_at(position, data)
        if position == 0:
            self._first_batch_timestamp = batches[0].max_timestamp
        for batch in batches:
            self.index(position, batch.last_offset, batch.max_timestamp, batch.size)
            position += batch.size
        self.size = position

    def defer_write(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Take one batch in as ``append`` does, to be written by ``write_appends``."""
        position, size = self.size, len(data)
        if not self._unwritten:
            self._unwritten_at = position
        self._unwritten.append(data)
        if position == 0:
            self._first_batch_timestamp = max_timestamp
        self.index(position, last_offset, max_timestamp, size)
        self.size = position + size

    def write_appends(self) -> None:
        """Write what appends have unwritten back."""
        if not self._unwritten:
            return
        unwritten, self._unwritten = self._unwritten, []
        position = self._unwritten_at
        if self._file is None:
            self._file = self._fs.open(self.path, write=True)
        if self.size > self._reserved_end and self.size - position >= _RESERVING_WRITE_BYTES_MIN:
            self._file.reserve(position, self.size - position + RESERVED_BYTES)
            self._reserved_end = self.size + RESERVED_BYTES
        if len(unwritten) == 1:
            self._file.write_at(position, unwritten[0])
        else:
            self._file.write_all_at(position, unwritten)

    def index(self, position: int, last_offset: int, max_timestamp: int, size: int) -> None:
        """Take note of one batch, appended or found by a scan: both give the same entries."""
        maximum = self._max_timestamp or self.max_timestamp
        if max_timestamp > maximum.timestamp:
            maximum = self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self._bytes_since_index_entry > self._index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*maximum)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp of the segment and the batch's last offset; (-1, base) if none."""
        if self._max_timestamp is None:
            try:
                self._max_timestamp = self.time_index.last_entry
            except (CorruptIndex, FileNotFoundError) as error:
                self.rebuild_indexes(str(error))
                return self.max_timestamp
        return self._max_timestamp

    def largest_timestamp_ms(self) -> int:
        """Return what retention by time goes by: the largest record timestamp, else the file's."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self._fs.stat(self.path).mtime_ms

    # Reading

    def find(self, offset: int) -> BatchHead | None:
        """Return the first batch that ends at or behind ``offset``; None if all end before it."""
        if not self._indexes_loaded:
            self._load_indexes()
        if (found := self._find_large(offset)) is not None:
            return BatchHead(*found)
        try:
            return self._find(offset)
        except CorruptIndex as error:
            self.rebuild_indexes(str(error))
        try:
            return self._find(offset)
        except CorruptIndex as error:
            raise CorruptBatch(f"{self.path}: {error}") from error

    def large_slice(self, offset: int, max_bytes: int) -> LogSlice | None:
        """Return what is to be read from ``offset`` on, at least a batch, if that one is large.

        None says nothing but that it takes ``find`` to tell.
        """
        found = self._find_large(offset) if self._indexes_loaded else None
        if found is None:
            return None
        position, base_offset, _, size, _, _, _ = found
        if size < max_bytes:
            size = self.size - position
            if size > max_bytes:
                size = max_bytes
        return LogSlice(self.file, position, size, base_offset)

    def small_bytes(self, offset: int, max_bytes: int) -> bytes | None:
        """Return what is to be read from ``offset`` on, at least a batch, if that is little.

        None says nothing but that it takes ``find`` to tell.
        """
        if not self._indexes_loaded:
            return None
        last_offset, position = self.offset_index.lookup(offset)
        first_ends_at = last_offset if position else None
        return read_small(self.file, position, self.size, offset, max_bytes, first_ends_at)

    def _find_large(self, offset: int) -> tuple[int, int, int, int, int, int, int] | None:
        """Look for ``offset`` in the batch of the index entry behind it; return its ``BatchHead``.

        If batches are large each has an entry, and this takes one small read; the entry before
        the offset is that of another batch. None says nothing but that it is not there.
        """
        entry = self.offset_index.large_batch(offset, _LARGE_BATCH_BYTES)
        if entry is None:
            return None
        last_offset, position = entry
        try:
            fields = BATCH_HEADER.unpack(self.file.read_at(position, HEADER_SIZE))
        except struct.error:
            return None
        base_offset, length, epoch, magic, _, _, delta, _, max_timestamp, _, _, _, _ = fields
        size = length + LOG_OVERHEAD
        if (
            magic != MAGIC
            or base_offset > offset
            or base_offset + delta != last_offset
            or not HEADER_SIZE <= size <= self.size - position
        ):
            return None
        return position, base_offset, last_offset, size, magic, max_timestamp, epoch

    def _find(self, offset: int) -> BatchHead | None:
        entry = self.offset_index.lookup(offset)
        if entry.position == 0:
            return find_batch(self.file, 0, self.size, offset)
        try:
            return find_batch(self.file, entry.position, self.size, offset, entry.offset)
        except CorruptBatch as error:
            raise CorruptIndex(str(error)) from error

    def slice(self, head: BatchHead, max_bytes: int, end: int) -> LogSlice:
        """Return at most ``max_bytes`` from a batch's start on, not reaching behind ``end``."""
        position = head.position
        size = min(max_bytes, end - position)
        return LogSlice(self.file, position, size if size > 0 else 0, head.base_offset)

    def heads(self, position: int = 0) -> Iterator[BatchHead]:
        """Yield the batches' heads from a position on."""
        return scan_heads(self.file, position, self.size)

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, Batch]]:
        """Yield (position, batch); a batch is good until the next step."""
        return scan_batches(self.file, position, self.size if end is None else end)

    def next_offset(self) -> int:
        """Return the offset behind the last batch, by a walk from the last index entry."""
        self._load_indexes()
        last = deque(self._heads_from(self.offset_index.last_entry.offset), maxlen=1)
        return last[0].last_offset + 1 if last else self.base_offset

    def _heads_from(self, offset: int) -> Iterator[BatchHead]:
        """Yield the heads from the batch on that ends at or behind ``offset``."""
        head = self.find(offset)
        return iter(()) if head is None else self.heads(head.position)

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampedOffset | None:
        """Return the first record at or behind ``start_offset`` that is not older than asked."""
        self._load_indexes()
        floor = self.time_index.lookup(timestamp)
        for head in self._heads_from(max(floor.offset, start_offset)):
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
        maximum = self.max_timestamp
        for head in self._heads_from(maximum.offset):
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
        _, batch = next(scan_batches(self.file, head.position, head.position + head.size))
        return batch

    # Repair

    def _load_indexes(self) -> None:
        if self._indexes_loaded:
            return
        try:
            self.offset_index.load()
            self.time_index.load()
        except (CorruptIndex, FileNotFoundError) as error:
            self.rebuild_indexes(str(error))
        self._indexes_loaded = True
        self._count_index_memory()

    def _count_index_memory(self) -> None:
        size = self.offset_index.memory_bytes + self.time_index.memory_bytes
        self._index_memory.loaded(self, size)

    def unload_indexes(self) -> None:
        """Give the indexes' memory back, where the files have everything."""
        self.offset_index.unload()
        self.time_index.unload()
        self._indexes_loaded = False

    def rebuild_indexes(self, reason: str) -> None:
        """Make the offset and time index anew from the batches' heads.

        The segment may lie below the recovery point, so that nobody looks at it after a crash: the
        old files stay until the new ones are whole and on the disk.
        """
        logger.warning("%s: rebuilding the indexes: %s", self.path, reason)
        self.offset_index.reset()
        self.time_index.reset()
        self._start_indexing()
        try:
            for head in self.heads():
                self.index(head.position, head.last_offset, head.max_timestamp, head.size)
        except BaseException:
            self.offset_index.drop()
            self.time_index.drop()
            self._indexes_loaded, self._max_timestamp = False, None
            raise
        self.time_index.maybe_append(*self.max_timestamp)
        self.offset_index.replace()
        self.time_index.replace()

    def reset_indexes(self) -> None:
        """Empty the offset and time index, before a scan fills them."""
        self.offset_index.create()
        self.time_index.create()
        self._start_indexing()

    def _start_indexing(self) -> None:
        self._indexes_loaded = True
        self._max_timestamp = TimestampOffset(-1, self.base_offset)
        self._first_batch_timestamp = None
        self._bytes_since_index_entry = 0

    def recover(
        self,
        latest_epoch: int,
        on_epoch: Callable[[int, int], object],
        on_producer: Callable[[RecordBatch], None],
    ) -> Recovered:
        """Scan the file, index every batch anew, cut at the first bad one.

        ``on_epoch`` hears of every leader epoch above ``latest_epoch`` and the offset it begins at,
        ``on_producer`` of every batch that a producer's state depends on.
        """
        self.reset_indexes()
        self.txn_index.reset()
        valid, previous, has_gaps = 0, self.base_offset - 1, False
        offset_max = self.base_offset + MAX_RELATIVE_OFFSET
        # The same bookkeeping as in ``index``, without a call for each batch.
        top, since_entry, interval = TimestampOffset(-1, self.base_offset), 0, self._index_interval
        entries: list[OffsetPosition] = []
        time_entries: list[TimestampOffset] = []
        try:
            for checked in scan_checked(self.file, 0, self.size):
                position, size, base_offset, last_offset, max_timestamp, epoch, batch = checked
                if not previous < last_offset <= offset_max:
                    raise CorruptBatch(f"offset {last_offset} is out of order", position)
                if base_offset != previous + 1:
                    has_gaps = True
                if max_timestamp > top[0]:
                    top = TimestampOffset(max_timestamp, last_offset)
                if since_entry > interval:
                    entries.append(OffsetPosition(last_offset, position))
                    time_entries.append(top)
                    since_entry = 0
                since_entry += size
                if epoch > latest_epoch:
                    on_epoch(epoch, base_offset)
                    latest_epoch = epoch
                if batch is not None:
                    on_producer(batch)
                previous, valid = last_offset, position + size
        except CorruptBatch as error:
            cut, why = self.size - valid, error.args[0]
            logger.warning("%s: cutting off %d bytes at %d: %s", self.path, cut, valid, why)
            self.cut(valid)
        self._max_timestamp, self._bytes_since_index_entry = top, since_entry
        self.offset_index.fill(entries)
        self.time_index.fill(time_entries)
        self.seal()
        return Recovered(previous + 1, has_gaps)

    def cut(self, size: int) -> None:
        """Cut the file, durably: bytes that were taken back must not return after a crash."""
        self.file.truncate(size)
        self.file.sync()
        self.size = size
        self._reserved_end = RESERVED_BYTES

    def truncate_to(self, offset: int) -> int:
        """Drop every batch that ends at or behind ``offset``; return how many bytes went."""
        head = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        dropped = 0
        if head is not None:
            dropped = self.size - head.position
            self.cut(head.position)
        if self.size == 0:
            self._created_ms = self._clock.now_ms()
            self._first_batch_timestamp = None
        self._bytes_since_index_entry = 0
        self._max_timestamp = self._rescan_max_timestamp()
        return dropped

    def _rescan_max_timestamp(self) -> TimestampOffset:
        maximum = self.time_index.last_entry
        for head in self._heads_from(maximum.offset):
            if head.max_timestamp > maximum.timestamp:
                maximum = TimestampOffset(head.max_timestamp, head.last_offset)
        return maximum

    # Life

    def seal(self) -> None:
        """Write the indexes out with the last time entry, and give back preallocated room.

        Done when the log is closed, and before: see ``retire``.
        """
        self.write_appends()
        if self._max_timestamp is not None:
            self.time_index.load()
            self.time_index.maybe_append(*self._max_timestamp)
        self.offset_index.write_out()
        self.time_index.write_out()
        if self._file is not None and (
            self._reserved_end > max(self.size, RESERVED_BYTES) or self._file.size() > self.size
        ):
            self._file.truncate(self.size)
            self._reserved_end = RESERVED_BYTES

    def retire(self) -> None:
        """Stop being the active segment: sealed, and its indexes may leave memory."""
        self.seal()
        self._count_index_memory()

    def sync_indexes(self) -> None:
        """Bring the indexes' files to the disk."""
        self.offset_index.sync()
        self.time_index.sync()
        self.txn_index.sync()

    def close(self) -> None:
        """Let go of the descriptors; a later use opens the files again.

        The log file's own goes with the last slice that is being sent from it: see ``OsFile``.
        """
        self._file = None
        self.txn_index.close()

    def discard(self) -> None:
        """Give everything back, as the segment is taken out of its log."""
        self.close()
        self._index_memory.forget(self)

    def paths(self) -> list[str]:
        """Return the files that exist for this segment, in the order they are to be removed."""
        paths = [self.path, self.offset_index.path, self.time_index.path, self.txn_index.path]
        return [path for path in paths if self._fs.exists(path)]

    def moved_to(self, directory: str) -> None:
        """Follow a rename of the partition's folder."""
        self.directory = directory
        for holder in (self, self.offset_index, self.time_index, self.txn_index):
            holder.path = join(directory, file_name(holder.path))
