"""The two sparse indexes of a segment: offset → file position, and timestamp → offset.

Both are in memory as arrays while they are in use, and are written to their files when the log is
flushed, rolled or closed, so an append makes no system call for them. That is safe because an index
holds nothing that is not in the segment: after an unclean stop every segment from the recovery
point on is scanned and its indexes are rebuilt, and the recovery point only moves after the indexes
below it were synced. Kafka maps a preallocated file instead; after a clean stop the bytes are
equal.

A closed segment's index is read when a lookup first needs it, and the memory for those of all
closed segments of a node is bounded (``IndexMemory``).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dohle.storage.files import FileSystem, make_empty, sync_file, write_atomically

MAX_RELATIVE_OFFSET = 2**31 - 1

_INDEX_MEMORY_LEAST = 1024

_TIME_ENTRY = struct.Struct(">qi")


class CorruptIndex(Exception):
    """An index file that is damaged; a scan of the segment makes a new one."""


class IndexHolder(Protocol):
    """The indexes of a segment, as ``IndexMemory`` sees them."""

    def unload(self) -> None:
        """Free the memory; the next lookup reads the files again."""


class IndexMemory:
    """A limit for the memory of closed segments' indexes: first in, first out."""

    def __init__(self, bytes_max: int = 64 << 20) -> None:
        self._bytes_max = bytes_max
        self._loaded: dict[IndexHolder, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._loaded)

    def loaded(self, holder: IndexHolder, size: int) -> None:
        """Count indexes that were read, and make room for them."""
        self.forget(holder)
        # Even an empty index takes some memory, so their number is bounded too.
        size = max(size, _INDEX_MEMORY_LEAST)
        self._loaded[holder] = size
        self.bytes += size
        while self.bytes > self._bytes_max and len(self._loaded) > 1:
            oldest = next(iter(self._loaded))
            self.forget(oldest)
            oldest.unload()

    def forget(self, holder: IndexHolder) -> None:
        """Stop counting a segment's indexes."""
        self.bytes -= self._loaded.pop(holder, 0)


# To make a named tuple this way takes half of the time.
_new = tuple.__new__


class OffsetPosition(NamedTuple):
    """The last offset of a batch and where in the file the batch begins."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A timestamp that no earlier record of the segment exceeds, and the offset that has it."""

    timestamp: int
    offset: int


class _Index:
    """What both indexes have in common: lazy loading, delayed writing, truncation."""

    ENTRY_SIZE = 0

    def __init__(self, fs: FileSystem, path: str, base_offset: int, size_max: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self.entries_max = size_max // self.ENTRY_SIZE
        self._loaded = False
        # How many entries are in the file; later ones are only in memory.
        self._entries_in_file = 0

    def create(self) -> None:
        """Make the file, empty, for a new segment or one whose index is about to be rebuilt."""
        make_empty(self._fs, self.path)
        self.reset()

    def reset(self) -> None:
        """Empty the index in memory; the file is outdated until ``create`` or ``replace``."""
        self._clear()
        self._entries_in_file = 0
        self._loaded = True

    def replace(self) -> None:
        """Replace the file by what is in memory, atomically and durably."""
        write_atomically(self._fs, self.path, self._pack(0))
        self._entries_in_file = len(self)

    def load(self) -> None:
        """Read the file if that has not been done; CorruptIndex if it is damaged."""
        if self._loaded:
            return
        data = self._fs.read(self.path)
        self._ensure_whole(len(data))
        self._parse(data)
        self._entries_in_file = len(data) // self.ENTRY_SIZE
        self._loaded = True

    def _ensure_whole(self, size: int) -> int:
        if size % self.ENTRY_SIZE:
            raise CorruptIndex(
                f"{self.path} has {size} bytes, which is no multiple of {self.ENTRY_SIZE}"
            )
        return size

    def unload(self) -> None:
        """Free the memory, if the file has everything; the next lookup reads it again."""
        if self._loaded and self._entries_in_file == len(self):
            self.drop()

    def drop(self) -> None:
        """Forget what is in memory, written or not."""
        self._clear()
        self._loaded = False

    @property
    def memory_bytes(self) -> int:
        """How much memory the entries take."""
        return len(self) * self.ENTRY_SIZE

    def write_out(self) -> None:
        """Bring the file up to what is in memory."""
        if not self._loaded or self._entries_in_file == len(self):
            return
        file = self._fs.open(self.path, write=True)
        try:
            file.write_at(
                self._entries_in_file * self.ENTRY_SIZE, self._pack(self._entries_in_file)
            )
        finally:
            file.close()
        self._entries_in_file = len(self)

    @property
    def is_loaded(self) -> bool:
        """Tell whether the entries are in memory, and the file may lack some."""
        return self._loaded

    def forget_file(self) -> None:
        """Note that there is a new, empty file: what is in memory is not in it yet."""
        self._entries_in_file = 0

    def sync(self) -> None:
        """Return once the file's bytes are on the disk."""
        sync_file(self._fs, self.path)

    def _cut(self, entries: int) -> None:
        self._keep(entries)
        if self._entries_in_file > entries:
            file = self._fs.open(self.path, write=True)
            try:
                file.truncate(entries * self.ENTRY_SIZE)
            finally:
                file.close()
            self._entries_in_file = entries

    def __len__(self) -> int:
        raise NotImplementedError

    def _clear(self) -> None:
        raise NotImplementedError

    def _keep(self, entries: int) -> None:
        raise NotImplementedError

    def _parse(self, data: bytes) -> None:
        raise NotImplementedError

    def _pack(self, start: int) -> bytes:
        raise NotImplementedError


class OffsetIndex(_Index):
    """Eight-byte entries: (last offset of a batch - base offset, the batch's position)."""

    ENTRY_SIZE = 8

    def __init__(self, fs: FileSystem, path: str, base_offset: int, size_max: int) -> None:
        super().__init__(fs, path, base_offset, size_max)
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def entries_left(self) -> int:
        """How many more entries fit; the segment has to be rolled if none does."""
        return self.entries_max - len(self._offsets)

    @property
    def last_entry(self) -> OffsetPosition:
        """Return the last entry; the segment's start if there is none."""
        self.load()
        if not self._offsets:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + self._offsets[-1], self._positions[-1])

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets rise strictly.

        A full index accepts it all the same: an append that began in this segment ends in it, and
        the next one rolls.
        """
        relative = offset - self.base_offset
        if self._offsets and relative <= self._offsets[-1]:
            raise ValueError(f"{self.path}: offset {offset} does not follow the last entry")
        self._offsets.append(relative)
        self._positions.append(position)

    def fill(self, entries: Sequence[OffsetPosition]) -> None:
        """Take all entries of a scan into the empty index."""
        base_offset = self.base_offset
        self._offsets.extend([offset - base_offset for offset, _ in entries])
        self._positions.extend([position for _, position in entries])

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the entry with the largest offset not above ``offset``; else the start."""
        if not self._loaded:
            self.load()
        base_offset = self.base_offset
        slot = bisect_right(self._offsets, offset - base_offset) - 1
        if slot < 0:
            return _new(OffsetPosition, (base_offset, 0))
        return _new(OffsetPosition, (base_offset + self._offsets[slot], self._positions[slot]))

    def position_before(self, offset: int, entries: int) -> int:
        """Return where the batch begins that lies this many entries before an offset; else 0."""
        self.load()
        slot = bisect_right(self._offsets, offset - self.base_offset) - entries
        return self._positions[slot] if slot >= 0 else 0

    def large_batch(self, offset: int, size_min: int) -> tuple[int, int] | None:
        """Return the first entry not below ``offset``, if it is far behind the one before it.

        The index must be loaded.
        """
        offsets, positions = self._offsets, self._positions
        slot = bisect_left(offsets, offset - self.base_offset)
        if slot == len(offsets):
            return None
        position = positions[slot]
        if position - (positions[slot - 1] if slot else 0) < size_min:
            return None
        return self.base_offset + offsets[slot], position

    def first_offset_at_or_after(self, position: int) -> int | None:
        """Return the offset of the first entry whose batch begins at ``position`` or behind it."""
        self.load()
        slot = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[slot] if slot < len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for ``offset`` and above."""
        self.load()
        self._cut(bisect_left(self._offsets, offset - self.base_offset))

    def entries(self) -> list[OffsetPosition]:
        """Return all entries."""
        self.load()
        return [
            OffsetPosition(self.base_offset + offset, position)
            for offset, position in zip(self._offsets, self._positions, strict=True)
        ]

    def _clear(self) -> None:
        self._offsets, self._positions = array("i"), array("i")

    def _keep(self, entries: int) -> None:
        del self._offsets[entries:]
        del self._positions[entries:]

    def _parse(self, data: bytes) -> None:
        pairs = array("i", data)
        if sys.byteorder == "little":
            pairs.byteswap()
        offsets, positions = pairs[0::2], pairs[1::2]
        # After a crash of Kafka there may be preallocated zeros behind the real entries.
        if offsets and (offsets[-1] < 0 or (len(offsets) > 1 and offsets[-1] <= offsets[0])):
            raise CorruptIndex(f"{self.path}: last offset is not above the first")
        self._offsets, self._positions = offsets, positions

    def _pack(self, start: int) -> bytes:
        pairs = array("i", bytes(8 * (len(self) - start)))
        pairs[0::2] = self._offsets[start:]
        pairs[1::2] = self._positions[start:]
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()


class TimeIndex(_Index):
    """Twelve-byte entries: (largest timestamp so far, offset that has it - base offset).

    It counts as full one entry early: the last slot is for the one added when the segment closes.
    """

    ENTRY_SIZE = 12

    def __init__(self, fs: FileSystem, path: str, base_offset: int, size_max: int) -> None:
        super().__init__(fs, path, base_offset, size_max)
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def entries_left(self) -> int:
        """How many more entries fit; the segment has to be rolled if none does."""
        return self.entries_max - 1 - len(self._timestamps)

    @property
    def last_entry(self) -> TimestampOffset:
        """Return the last entry; (-1, base offset) if there is none.

        If the index is not in memory, only its end is read: a search by time needs the last entry
        of many segments, but the whole index of only one.
        """
        if not self._loaded:
            return self._last_entry_in_file()
        if not self._timestamps:
            return TimestampOffset(-1, self.base_offset)
        return TimestampOffset(self._timestamps[-1], self.base_offset + self._offsets[-1])

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp grew."""
        if self._timestamps and timestamp <= self._timestamps[-1]:
            return
        last = self.last_entry
        if timestamp <= last.timestamp:
            return
        if offset < last.offset:
            raise ValueError(f"{self.path}: offset {offset} is below the last entry's")
        self._timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)

    def _last_entry_in_file(self) -> TimestampOffset:
        file = self._fs.open(self.path)
        try:
            size = self._ensure_whole(file.size())
            if size == 0:
                return TimestampOffset(-1, self.base_offset)
            first, _ = _TIME_ENTRY.unpack(file.read_at(0, self.ENTRY_SIZE))
            last = file.read_at(size - self.ENTRY_SIZE, self.ENTRY_SIZE)
        finally:
            file.close()
        timestamp, offset = _TIME_ENTRY.unpack(last)
        if timestamp < first or offset < 0:
            raise CorruptIndex(f"{self.path}: last entry is below the first")
        return TimestampOffset(timestamp, self.base_offset + offset)

    def fill(self, entries: Sequence[TimestampOffset]) -> None:
        """Take the entries of a scan into the empty index; one that repeats the last is skipped."""
        previous = -1
        for timestamp, offset in entries:
            if timestamp > previous:
                self._timestamps.append(timestamp)
                self._offsets.append(offset - self.base_offset)
                previous = timestamp

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry whose timestamp is not above ``timestamp``; else the start."""
        self.load()
        slot = bisect_right(self._timestamps, timestamp) - 1
        if slot < 0:
            return TimestampOffset(-1, self.base_offset)
        return TimestampOffset(self._timestamps[slot], self.base_offset + self._offsets[slot])

    def truncate_to(self, offset: int) -> None:
        """Drop the entries for ``offset`` and above."""
        self.load()
        self._cut(bisect_left(self._offsets, offset - self.base_offset))

    def entries(self) -> list[TimestampOffset]:
        """Return all entries."""
        self.load()
        return [
            TimestampOffset(timestamp, self.base_offset + offset)
            for timestamp, offset in zip(self._timestamps, self._offsets, strict=True)
        ]

    def _clear(self) -> None:
        self._timestamps, self._offsets = array("q"), array("i")

    def _keep(self, entries: int) -> None:
        del self._timestamps[entries:]
        del self._offsets[entries:]

    def _parse(self, data: bytes) -> None:
        rows: Sequence[tuple[int, int]] = list(_TIME_ENTRY.iter_unpack(data))
        timestamps = array("q", [row[0] for row in rows])
        offsets = array("i", [row[1] for row in rows])
        if rows and (timestamps[-1] < timestamps[0] or offsets[-1] < 0):
            raise CorruptIndex(f"{self.path}: last entry is below the first")
        self._timestamps, self._offsets = timestamps, offsets

    def _pack(self, start: int) -> bytes:
        rows = zip(self._timestamps[start:], self._offsets[start:], strict=True)
        return b"".join([_TIME_ENTRY.pack(*row) for row in rows])
