"""The producer snapshots in a partition's folder: which exist, and which may be removed.

There is one at the start of every segment, so that recovery of a segment needs to read no other,
and one at the log's end after a clean stop.

One of many producers is written later, by a flush and in its thread: its file is there, but empty.
Until then it is *unwritten*. Whoever needs the file, or removes what could make up for it, has it
written first.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Collection, Iterable, Sequence

from dohle.core.ids import TopicPartition
from dohle.storage.files import FileSystem, join
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.producers.snapshot import (
    CorruptSnapshot,
    SnapshotWrite,
    begin_snapshot,
    read_snapshot,
    snapshot_name,
    snapshot_offset,
    write_snapshot,
)
from dohle.storage.segment.file_names import DELETED_SUFFIX

logger = logging.getLogger("dohle.storage")

#: A snapshot of more producers than that is not written at once.
WRITTEN_AT_ONCE_MAX = 1_000


class SnapshotFiles:
    """The snapshots by their offsets. ``directory`` follows a rename of the partition's folder."""

    __slots__ = (
        "_fs",
        "_offsets",
        "_partition",
        "_unwritten",
        "directory",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        partition: TopicPartition,
        offsets: Iterable[int] | None = None,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self._partition = partition
        self._offsets = self._list() if offsets is None else sorted(offsets)
        self._unwritten: dict[int, SnapshotWrite] = {}

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets that have a snapshot, rising."""
        return tuple(self._offsets)

    @property
    def latest_offset(self) -> int | None:
        """The newest snapshot's offset."""
        return self._offsets[-1] if self._offsets else None

    def find(self, offset: int) -> str | None:
        """Return the path of the snapshot at an offset, if there is one."""
        return self._path(offset) if offset in self._offsets else None

    def write(self, offset: int, entries: Iterable[ProducerEntry], *, sync: bool) -> str:
        """Write a snapshot and return its path."""
        path = self._path(offset)
        self._unwritten.pop(offset, None)
        write_snapshot(self._fs, path, entries, sync=sync)
        self._add(offset)
        return path

    def write_soon(
        self, offset: int, entries: Collection[ProducerEntry], *, closing: bool = False
    ) -> str:
        """Write a snapshot if it is short, or else leave that to the next flush; return its path.

        Nothing is synced. If the log is being closed, the flush makes the file, too: many logs are
        closed at once, and its threads make files at the same time.
        """
        path = self._path(offset)
        if closing:
            self._unwritten[offset] = SnapshotWrite(self._fs, path, tuple(entries))
        elif len(entries) <= WRITTEN_AT_ONCE_MAX:
            return self.write(offset, entries, sync=False)
        else:
            self._unwritten[offset] = begin_snapshot(self._fs, path, tuple(entries))
        self._add(offset)
        return path

    def _add(self, offset: int) -> None:
        if offset not in self._offsets:
            insort(self._offsets, offset)

    @property
    def unwritten(self) -> tuple[SnapshotWrite, ...]:
        """What is to be written by the next flush."""
        return tuple(self._unwritten.values())

    def written(self, writes: Iterable[SnapshotWrite]) -> None:
        """Take note that these were run."""
        done = list(writes)
        for offset, write in list(self._unwritten.items()):
            if any(write is each for each in done):
                del self._unwritten[offset]

    def write_out(self) -> None:
        """Write what is unwritten here and now."""
        for write in self.unwritten:
            write.run()
        self._unwritten.clear()

    def read_newest(self) -> tuple[int, Sequence[ProducerEntry]] | None:
        """Return the newest valid snapshot and its offset; damaged ones are removed."""
        self.write_out()
        while self._offsets:
            offset = self._offsets[-1]
            try:
                return offset, read_snapshot(self._fs, self._path(offset))
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning(
                    "%s: the producer snapshot at offset %d cannot be used and is removed; an "
                    "older one and the log make up for it: %s",
                    self._partition,
                    offset,
                    error,
                )
                self.remove(offset)
        return None

    def remove_strays(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep one snapshot per segment start, and the newest if it is behind all of them."""
        starts = set(segment_base_offsets)
        strays = [offset for offset in self._offsets if offset not in starts]
        if strays and strays[-1] > max(starts, default=-1):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def mark_for_deletion(self, offset: int) -> str | None:
        """Rename the snapshot at an offset so that it is removed later; return its new path."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        self._unwritten.pop(offset, None)
        path = self._path(offset)
        try:
            self._fs.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            logger.info("%s: %s is gone already", self._partition, path)
            return None
        return path + DELETED_SUFFIX

    def remove(self, offset: int) -> None:
        """Remove a snapshot."""
        self._offsets.remove(offset)
        self._unwritten.pop(offset, None)
        try:
            self._fs.remove(self._path(offset))
        except FileNotFoundError:
            logger.info("%s: %s is gone already", self._partition, self._path(offset))

    def _list(self) -> list[int]:
        try:
            found = self._fs.list_dir(self.directory)
        except FileNotFoundError:
            return []
        offsets = (snapshot_offset(entry.name) for entry in found if not entry.is_dir)
        return sorted(offset for offset in offsets if offset is not None)

    def _path(self, offset: int) -> str:
        return join(self.directory, snapshot_name(offset))
