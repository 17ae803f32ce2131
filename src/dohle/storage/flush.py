"""Bringing a log to the disk: what a flush has to do, apart from when."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dohle.storage.files import FileSystem
from dohle.storage.producer_snapshot import flush_snapshot
from dohle.storage.segment import LogSegment

logger = logging.getLogger("dohle.storage")


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Everything a flush needs, so that ``run`` may block in any thread."""

    fs: FileSystem
    directory: str
    closed: tuple[LogSegment, ...]
    active: LogSegment | None
    snapshots: tuple[str, ...]
    names_changed: bool
    offset: int
    truncations: int

    def run(self) -> None:
        """Sync the files. One that retention took away meanwhile need not be."""
        for snapshot in self.snapshots:
            if self.fs.exists(snapshot):
                flush_snapshot(self.fs, snapshot)
        for segment in self.closed:
            try:
                segment.sync()
            except FileNotFoundError:
                logger.debug("%s went while it was being flushed", segment.path)
        # The active segment's indexes are rebuilt after an unclean stop: syncing them buys nothing.
        if self.active is not None:
            self.active.file.sync()
        if self.names_changed and self.fs.exists(self.directory):
            self.fs.sync_dir(self.directory)
