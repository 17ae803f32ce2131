"""The three indexes of a segment, kept in step with its ``.log`` file.

A batch gets an entry in the offset and the time index when more than ``index.interval.bytes`` were
appended since the last entry, counted before the batch itself, so the first batch of a segment
never has one. A closed segment's entries are read when they are first needed and may leave memory
again. If the files turn out to be damaged, the entries are rebuilt from the ``.log`` file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dohle.storage.config import LogConfig
from dohle.storage.files import file_name, join
from dohle.storage.segment.batch_scan import scan_heads
from dohle.storage.segment.context import SegmentContext
from dohle.storage.segment.file_names import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from dohle.storage.segment.index import (
    CorruptIndex,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from dohle.storage.segment.segment_file import SegmentFile
from dohle.storage.segment.transaction_index import TransactionIndex

logger = logging.getLogger("dohle.storage")

# To make a named tuple this way takes half of the time.
_new = tuple.__new__


class SegmentIndexes:
    """The offset, time and transaction index of one segment."""

    __slots__ = (
        "_base_offset",
        "_entries_left",
        "_log_file",
        "_max_timestamp",
        "_memory",
        "bytes_since_entry",
        "interval_bytes",
        "is_full",
        "loaded",
        "offset",
        "time",
        "txn",
    )

    def __init__(
        self,
        context: SegmentContext,
        log_file: SegmentFile,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        suffix: str = "",
    ) -> None:
        fs, size_max = context.fs, config.segment_index_bytes

        def path(kind: str) -> str:
            return join(directory, segment_file_name(base_offset, kind + suffix))

        self.offset = OffsetIndex(fs, path(INDEX_SUFFIX), base_offset, size_max)
        self.time = TimeIndex(fs, path(TIME_INDEX_SUFFIX), base_offset, size_max)
        self.txn = TransactionIndex(fs, path(TXN_INDEX_SUFFIX), base_offset, context.open_files)
        self.interval_bytes = config.index_interval_bytes
        self.bytes_since_entry = 0
        #: Tells whether the offset and time index are in memory.
        self.loaded = False
        #: Tells whether the segment has to be rolled because an index has no room for an entry.
        #: Known only while they are loaded.
        self.is_full = False
        #: How many more fit in any case: each batch adds at most one to each index.
        self._entries_left = 0
        self._log_file = log_file
        self._base_offset = base_offset
        self._memory = context.index_memory
        self._max_timestamp: TimestampOffset | None = None

    def create(self) -> None:
        """Make the files of a new segment, which has no aborted transaction."""
        self.txn.delete()
        self.offset.create()
        self.time.create()
        self._max_timestamp = TimestampOffset(-1, self._base_offset)

    # Filling

    def add(self, position: int, last_offset: int, max_timestamp: int, size: int) -> None:
        """Add one batch, appended or found by a scan: both give the same entries."""
        maximum = self._max_timestamp or self.max_timestamp
        if max_timestamp > maximum.timestamp:
            maximum = self._max_timestamp = _new(TimestampOffset, (max_timestamp, last_offset))
        if self.bytes_since_entry > self.interval_bytes:
            self.offset.append(last_offset, position)
            self.time.maybe_append(*maximum)
            self.bytes_since_entry = 0
            self._entries_left -= 1
            if self._entries_left <= 0:
                self._count_entries()
        self.bytes_since_entry += size

    def fill(
        self,
        entries: Sequence[OffsetPosition],
        time_entries: Sequence[TimestampOffset],
        max_timestamp: TimestampOffset,
        bytes_since_entry: int,
    ) -> None:
        """After ``reset``, take in the entries that ``add`` would have made for a whole file."""
        self.offset.fill(entries)
        self.time.fill(time_entries)
        self._max_timestamp, self.bytes_since_entry = max_timestamp, bytes_since_entry
        self._count_entries()

    def _count_entries(self) -> None:
        self._entries_left = min(self.offset.entries_left, self.time.entries_left)
        self.is_full = self._entries_left <= 0

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp of the segment and the batch's last offset; (-1, base) if none."""
        if self._max_timestamp is None:
            try:
                self._max_timestamp = self.time.last_entry
            except (CorruptIndex, FileNotFoundError) as error:
                self.rebuild(str(error))
                return self.max_timestamp
        return self._max_timestamp

    # In memory or not

    def load(self) -> None:
        """Read the offset and time index, if that has not been done."""
        if self.loaded:
            return
        try:
            self.offset.load()
            self.time.load()
        except (CorruptIndex, FileNotFoundError) as error:
            self.rebuild(str(error))
        self.loaded = True
        self._count_entries()
        self.count_memory()

    def count_memory(self) -> None:
        """Count the entries among those that may have to leave memory."""
        self._memory.loaded(self, self.offset.memory_bytes + self.time.memory_bytes)

    def unload(self) -> None:
        """Free the memory, where the files have everything."""
        self.offset.unload()
        self.time.unload()
        self.loaded = False

    # Repair

    def rebuild(self, reason: str) -> None:
        """Rebuild the offset and time index from the heads of the batches.

        The segment may be below the recovery point, where recovery does not scan after a crash. So
        the old files stay until the new ones are complete and on the disk.
        """
        log_file = self._log_file
        logger.warning("%s: rebuilding the indexes: %s", log_file.path, reason)
        self.offset.reset()
        self.time.reset()
        self._start_over()
        try:
            for head in scan_heads(log_file.file, 0, log_file.size):
                self.add(head.position, head.last_offset, head.max_timestamp, head.size)
        except BaseException:
            self.offset.drop()
            self.time.drop()
            self.loaded, self._max_timestamp = False, None
            raise
        self.time.maybe_append(*self.max_timestamp)
        self.offset.replace()
        self.time.replace()

    def reset(self) -> None:
        """Empty the offset and time index, in memory and in their files."""
        self.offset.create()
        self.time.create()
        self._start_over()

    def _start_over(self) -> None:
        self.loaded = True
        self._max_timestamp = TimestampOffset(-1, self._base_offset)
        self.bytes_since_entry = 0
        self._count_entries()

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for ``offset`` and above; ``max_timestamp`` goes by what is left."""
        self.offset.truncate_to(offset)
        self.time.truncate_to(offset)
        self.txn.truncate_to(offset)
        self._max_timestamp = self.time.last_entry
        self.bytes_since_entry = 0
        self._count_entries()

    def raise_max_timestamp(self, timestamp: int, last_offset: int) -> None:
        """Take in a batch that has no entry of its own."""
        if timestamp > self.max_timestamp.timestamp:
            self._max_timestamp = TimestampOffset(timestamp, last_offset)

    # Life

    def write_out(self) -> None:
        """Write what is only in memory to the files, with the time entry that ends a segment."""
        if self._max_timestamp is not None:
            self.time.load()
            self.time.maybe_append(*self._max_timestamp)
            self._count_entries()
        self.offset.write_out()
        self.time.write_out()

    def sync(self) -> None:
        """Sync the files."""
        self.offset.sync()
        self.time.sync()
        self.txn.sync()

    def forget_files(self) -> None:
        """Note that the files are new ones, which are empty where the entries are in memory."""
        for index in (self.offset, self.time):
            if index.is_loaded:
                index.forget_file()

    def close(self) -> None:
        """Close the descriptor of the transaction index; a later use opens it again."""
        self.txn.close()

    def discard(self) -> None:
        """Free everything, as the segment is removed from its log."""
        self.txn.close()
        self._memory.forget(self)

    @property
    def paths(self) -> list[str]:
        """Where the files are, or would be."""
        return [self.offset.path, self.time.path, self.txn.path]

    def moved_to(self, directory: str) -> None:
        """Follow a rename of the partition's folder."""
        for index in (self.offset, self.time, self.txn):
            index.path = join(directory, file_name(index.path))
