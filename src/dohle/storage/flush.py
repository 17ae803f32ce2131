"""Flushing logs to the disk: what a flush has to do, and which log is due for one."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dohle.storage.files import FileSystem, Replacement, sync_file, write_whole
from dohle.storage.producers.snapshot import SnapshotWrite
from dohle.storage.segment.segments import Segments

logger = logging.getLogger("dohle.storage")

LogT = TypeVar("LogT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Everything a flush needs; ``run`` may block in any thread while the log is in use.

    It has paths, not open files: fsync works on the file, whichever descriptor it is called with.
    Only what it writes itself is open: another file may have the name by then.

    Of many jobs at once ``write`` can be called for all, then ``rename`` for all, each with a sync
    of the whole disk behind it.
    """

    fs: FileSystem
    paths: tuple[str, ...]
    #: Folders in which names have changed, so that these are synced too.
    folders: tuple[str, ...]
    #: The recovery point to reach, if ...
    offset: int
    #: ... the log was not truncated or moved meanwhile, and its active segment still begins here.
    generation: int
    active_base_offset: int
    #: The partition's leader epoch file, if that has to be written.
    leader_epochs: Replacement | None = None
    #: Snapshots of producers which are not in their files yet.
    snapshots: tuple[SnapshotWrite, ...] = ()

    def run(self) -> None:
        """Write what is left to it and sync the files. One that is gone by now needs no sync."""
        self.write()
        if self.leader_epochs is not None:
            sync_file(self.fs, self.leader_epochs.written_path)
        for path in self.paths:
            try:
                sync_file(self.fs, path)
            except FileNotFoundError:
                logger.debug("%s went while it was being flushed", path)
        self.rename()
        for folder in self.folders:
            try:
                self.fs.sync_dir(folder)
            except FileNotFoundError:
                logger.debug("%s went while it was being flushed", folder)

    def write(self) -> None:
        """Write what is left to it, without a sync."""
        if self.leader_epochs is not None:
            epochs = self.leader_epochs
            write_whole(self.fs, epochs.written_path, epochs.data, sync=False)
        for snapshot in self.snapshots:
            snapshot.run()

    @property
    def renames(self) -> bool:
        """Tell whether ``rename`` has anything to do."""
        return self.leader_epochs is not None and not self.leader_epochs.in_place

    def rename(self) -> None:
        """Replace what may only be replaced by a file that is on the disk."""
        if self.leader_epochs is not None and self.renames:
            self.fs.rename(self.leader_epochs.written_path, self.leader_epochs.path)


def files_to_sync(
    segments: Segments, recovery_point: int, offset: int, *, with_active_indexes: bool
) -> tuple[list[str], bool]:
    """Return the files to sync before the recovery point moves, and whether names changed too."""
    paths: list[str] = []
    names_changed = False
    active = segments.active
    for segment in segments.from_offset(recovery_point):
        if segment is active and not with_active_indexes:
            # Its indexes are rebuilt after an unclean stop: syncing them gains nothing.
            if segment.base_offset < offset:
                paths.append(segment.path)
                names_changed |= segment.base_offset >= recovery_point
        elif segment is active or segment.base_offset < offset:
            if segment is not active or recovery_point < offset:
                paths.append(segment.path)
            # Not all of them need exist: a job does without what is not there.
            paths += segment.indexes.paths
            names_changed = True
    return paths, names_changed


class FlushSchedule(Generic[LogT]):
    """Which logs want a flush, and when, so that not all of them have to be asked."""

    def __init__(self) -> None:
        # Entries of the heap that no longer match ``_due_ms`` are skipped.
        self._heap: list[tuple[int, int, LogT]] = []
        self._due_ms: dict[LogT, int] = {}
        self._in_flight: set[LogT] = set()
        self._order = itertools.count()

    def flush_at(self, log: LogT, due_ms: int) -> None:
        """Ask for a flush. If one of this log is in flight, ask again after ``landed``."""
        if log not in self._in_flight and due_ms < self._due_ms.get(log, due_ms + 1):
            self._due_ms[log] = due_ms
            heapq.heappush(self._heap, (due_ms, next(self._order), log))

    @property
    def next_due_ms(self) -> int | None:
        """When the next flush is due."""
        while self._heap and self._due_ms.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> list[LogT]:
        """Return the logs that are due, and count them as in flight until they have landed."""
        found: list[LogT] = []
        while (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            log = heapq.heappop(self._heap)[2]
            del self._due_ms[log]
            self._in_flight.add(log)
            found.append(log)
        return found

    def landed(self, log: LogT) -> bool:
        """Note that a flush has ended; tell whether the log still exists."""
        if log not in self._in_flight:
            return False
        self._in_flight.remove(log)
        return True

    def forget(self, log: LogT) -> None:
        """Drop a log that is gone."""
        self._due_ms.pop(log, None)
        self._in_flight.discard(log)
