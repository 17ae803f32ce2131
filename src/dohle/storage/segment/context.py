"""What a segment needs from outside: less than its log does."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dohle.core.seams import Clock
from dohle.storage.files import FileSystem
from dohle.storage.open_files import OpenFiles
from dohle.storage.segment.index import IndexMemory


class SegmentContext(Protocol):
    """The same for all segments that are used on one thread."""

    @property
    def fs(self) -> FileSystem:
        """Where its files are."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def index_memory(self) -> IndexMemory:
        """The memory limit of the indexes."""

    @property
    def open_files(self) -> OpenFiles:
        """So many of the files may be open."""


class OwnContext(NamedTuple):
    """One for segments that nobody else uses."""

    fs: FileSystem
    clock: Clock
    index_memory: IndexMemory
    open_files: OpenFiles
