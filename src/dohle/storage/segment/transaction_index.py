"""The index of a segment's aborted transactions: which data a read_committed consumer has to skip.

An entry is written for each abort marker in the segment whose transaction had data in this
partition, in the order of the markers. The first abort creates the file; most segments have none,
so whether it exists is checked once and remembered. An entry's last stable offset says how far
everything was decided when the marker was written: all transactions that overlap offsets below it
are listed up to this entry, so a search may stop here.

Kafka names the format version 0: 34 bytes an entry, all big-endian.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from dohle.core.ids import ProducerId
from dohle.storage.files import File, FileSystem, parent
from dohle.storage.open_files import OpenFiles
from dohle.storage.segment.index import CorruptIndex

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">q")
_LAST_OFFSET_AT = 18

#: How many entries are read from the file at once.
_CHUNK_ENTRIES = 1024


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted."""

    producer_id: ProducerId
    #: Its first record in this partition.
    first_offset: int
    #: Its abort marker.
    last_offset: int
    #: Below this every transaction was decided when the marker was written.
    last_stable_offset: int


class TransactionIndex:
    """The ``.txnindex`` of one segment. The file is opened when it is needed."""

    __slots__ = (
        "_entries",
        "_exists",
        "_file",
        "_fs",
        "_last_offset",
        "_name_unsynced",
        "_open_files",
        "_unsynced",
        "base_offset",
        "path",
        "was_used",
    )

    ENTRY_SIZE = _ENTRY.size

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        base_offset: int,
        open_files: OpenFiles,
        *,
        exists: bool | None = None,
    ) -> None:
        self._fs = fs
        self._open_files = open_files
        self.path = path
        self.base_offset = base_offset
        self._exists = exists
        #: May become None at any time, also by another thread.
        self._file: File | None = None
        self.was_used = False
        self._entries = 0
        self._last_offset = -1
        self._unsynced = False
        self._name_unsynced = False

    @property
    def is_empty(self) -> bool:
        """Tell whether no transaction of this segment was aborted."""
        return self._open() is None or self._entries == 0

    def append(self, aborted: AbortedTransaction) -> None:
        """Add the transaction of the marker just written; markers' offsets rise."""
        file = self._open() or self._create()
        if aborted.last_offset <= self._last_offset:
            raise ValueError(
                f"{self.path}: the marker at {aborted.last_offset} does not follow the one at "
                f"{self._last_offset}"
            )
        # Behind the last whole entry, overwriting what a torn write may have left there.
        file.write_at(self._entries * self.ENTRY_SIZE, _ENTRY.pack(_VERSION, *aborted))
        self._entries += 1
        self._last_offset = aborted.last_offset
        self._unsynced = True

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries; CorruptIndex if one has an unknown version."""
        found: list[AbortedTransaction] = []
        if (file := self._open()) is not None:
            for start in range(0, self._entries, _CHUNK_ENTRIES):
                found += self._read(file, start)
        return found

    def collect_aborted(
        self, fetch_offset: int, upper_bound_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that overlap [fetch offset, upper bound).

        The second value tells whether these are all; if not, the next segment may have more.
        """
        found: list[AbortedTransaction] = []
        if (file := self._open()) is None:
            return found, False
        # A marker below the fetch offset ends a transaction that does not reach it.
        for start in range(self._slot(file, fetch_offset), self._entries, _CHUNK_ENTRIES):
            for aborted in self._read(file, start):
                if aborted.first_offset < upper_bound_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper_bound_offset:
                    return found, True
        return found, False

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file is damaged; a scan of the segment makes a new one."""
        if (file := self._open()) is None:
            return
        if (size := file.size()) % self.ENTRY_SIZE:
            raise CorruptIndex(
                f"{self.path} has {size} bytes, which is no multiple of {self.ENTRY_SIZE}"
            )
        before = self.base_offset - 1
        for aborted in self.entries():
            if not before < aborted.last_offset >= aborted.first_offset:
                raise CorruptIndex(
                    f"{self.path}: {aborted} lies below the segment's base offset "
                    f"{self.base_offset} or not behind the entry before it"
                )
            before = aborted.last_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at ``offset`` or above."""
        if (file := self._open()) is not None:
            slot = self._slot(file, offset)
            if slot < self._entries:
                self._cut(file, slot)

    def reset(self) -> None:
        """Drop all entries, before a scan of the segment adds them anew."""
        if (file := self._open()) is not None:
            self._cut(file, 0)

    def sync(self) -> None:
        """Return once what was appended has reached the disk."""
        # The flags are cleared first: a change during the sync sets them again.
        unsynced, name_unsynced = self._unsynced, self._name_unsynced
        self._unsynced = self._name_unsynced = False
        try:
            if unsynced and (file := self._open()) is not None:
                file.sync()
            if name_unsynced:
                self._fs.sync_dir(parent(self.path))
        except OSError:
            self._unsynced |= unsynced
            self._name_unsynced |= name_unsynced
            raise

    def close(self) -> None:
        """Drop the file; a later use opens it again."""
        self._open_files.forget(self)
        self._file = None

    def let_go(self) -> None:
        """Drop the file to save a descriptor; the next use opens it again."""
        self._file = None

    def rename(self, path: str) -> None:
        """Give the file another name, if there is a file."""
        if self._open() is not None:
            self._fs.rename(self.path, path)
        self.path = path

    def delete(self) -> bool:
        """Remove the file; tell whether there was one."""
        self.close()
        self._exists = False
        self._entries, self._last_offset = 0, -1
        self._unsynced = self._name_unsynced = False
        try:
            self._fs.remove(self.path)
        except FileNotFoundError:
            return False
        return True

    def _open(self) -> File | None:
        file = self._file
        if file is not None or self._exists is False:
            self.was_used = True
            return file
        try:
            file = self._keep(self._fs.open(self.path, write=True))
        except FileNotFoundError:
            self._exists = False
            return None
        self._exists = True
        self._entries = file.size() // self.ENTRY_SIZE
        self._last_offset = self._last_offset_at(file, self._entries - 1) if self._entries else -1
        return file

    def _create(self) -> File:
        file = self._keep(self._fs.open(self.path, write=True, create=True))
        self._exists = self._name_unsynced = True
        return file

    def _keep(self, file: File) -> File:
        self._file = file
        self._open_files.opened(self, file)
        return file

    def _cut(self, file: File, entries: int) -> None:
        file.truncate(entries * self.ENTRY_SIZE)
        self._entries = entries
        self._last_offset = self._last_offset_at(file, entries - 1) if entries else -1
        self._unsynced = True

    def _slot(self, file: File, offset: int) -> int:
        """Return the number of the first entry whose marker is at ``offset`` or above."""
        return bisect_left(
            range(self._entries), offset, key=lambda slot: self._last_offset_at(file, slot)
        )

    def _last_offset_at(self, file: File, slot: int) -> int:
        data = file.read_at(slot * self.ENTRY_SIZE + _LAST_OFFSET_AT, _LAST_OFFSET.size)
        offset: int = _LAST_OFFSET.unpack(data)[0]
        return offset

    def _read(self, file: File, start: int) -> list[AbortedTransaction]:
        count = min(_CHUNK_ENTRIES, self._entries - start)
        data = file.read_at(start * self.ENTRY_SIZE, count * self.ENTRY_SIZE)
        found: list[AbortedTransaction] = []
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise CorruptIndex(
                    f"{self.path}: entry {start + len(found)} has version {version}, not {_VERSION}"
                )
            found.append(AbortedTransaction(*fields))
        return found
