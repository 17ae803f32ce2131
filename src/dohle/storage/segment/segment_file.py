"""The ``.log`` file of a segment: batches exactly as they came over the wire.

Appended bytes may stay unwritten for a while, so that many appends take one system call. Users of
``file`` do not notice: what is unwritten is written first. Nor do they notice that the file was
closed meanwhile (``OpenFiles``): it is opened again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dohle.storage.files import Buffer, File, FileSystem
from dohle.storage.open_files import OpenFiles

# Once a file has reached this size, and is written in large pieces, as much again is reserved on
# the disk: writing is a tenth cheaper if the file system finds its blocks at once.
RESERVED_BYTES = 8 * 1024 * 1024
_RESERVING_WRITE_BYTES_MIN = 256 * 1024
# A file in use is looked at so often for what somebody else has done to it: that takes longer than
# to read a little.
_LOOKED_AT_EVERY_S = 0.005


class LogSlice(NamedTuple):
    """A range of a segment file that begins with a batch; the last batch in it may be cut off."""

    file: File
    position: int
    size: int
    base_offset: int

    def read(self) -> bytes:
        """Copy the bytes out; the network path hands the slice to sendfile instead."""
        data = self.file.read_at(self.position, self.size)
        if len(data) < self.size:
            self.file.ensure_intact(self.position + self.size)
        return data


class SegmentFile:
    """The file and the bytes that are still to be written to its end."""

    __slots__ = (
        "_file",
        "_fs",
        "_looked_at_s",
        "_now",
        "_open_files",
        "_reserved_end",
        "_unwritten",
        "_unwritten_at",
        "_was_opened",
        "path",
        "size",
        "was_used",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        size: int,
        open_files: OpenFiles,
        now: Callable[[], float],
    ) -> None:
        self._fs = fs
        self._open_files = open_files
        self._now = now
        self._looked_at_s = -_LOOKED_AT_EVERY_S
        self.path = path
        #: Including what is unwritten, without preallocated room.
        self.size = size
        #: May become None at any time, also by another thread.
        self._file: File | None = None
        self.was_used = False
        #: Whether this process has opened it, though it may be closed now.
        self._was_opened = False
        self._unwritten: list[Buffer] = []
        self._unwritten_at = 0
        self._reserved_end = RESERVED_BYTES

    def create(self, preallocated_bytes: int) -> None:
        """Create the file, empty, with room for so many bytes."""
        file = self._keep(self._fs.open(self.path, write=True, create=True))
        file.truncate(0)
        if preallocated_bytes:
            file.allocate(preallocated_bytes)

    @property
    def file(self) -> File:
        """The file, with everything written; opened when it is needed."""
        file = self._file
        if file is None:
            file = self._open()
        self.was_used = True
        if self._unwritten:
            self.write_appends()
        return file

    def _open(self) -> File:
        return self._keep(self._fs.open(self.path, write=True))

    def _keep(self, file: File) -> File:
        self._file, self._was_opened = file, True
        self._open_files.opened(self, file)
        return file

    def intact_file(self) -> File:
        """Return the file; FileLost if somebody else has cut or deleted it, even a moment ago.

        (A read that returns too little finds out at once: see ``ensure_intact``.)
        """
        file = self._file
        if file is None or self._unwritten:
            file = self.file
        self.was_used = True
        if self._now() - self._looked_at_s >= _LOOKED_AT_EVERY_S:
            self._look_at(file, self.size)
        return file

    def ensure_intact(self) -> None:
        """Raise FileLost if somebody else has cut or deleted the file."""
        self.file.ensure_intact(self.size)

    def _look_at(self, file: File, size: int) -> None:
        file.ensure_intact(size)
        self._looked_at_s = self._now()

    @property
    def unwritten(self) -> list[bytes]:
        """Copies of what ``write_appends`` would write."""
        return [bytes(data) for data in self._unwritten]

    @property
    def mtime_ms(self) -> int:
        """When the file was last written to."""
        return self._fs.stat(self.path).mtime_ms

    def append(self, data: Buffer) -> int:
        """Write bytes at the end; return where they begin."""
        position, file = self.size, self.intact_file()
        file.ensure_length(position)
        file.write_at(position, data)
        self.size = position + len(data)
        return position

    def defer_write(self, data: Buffer, size: int) -> int:
        """Add so many bytes at the end, unwritten; return where they begin.

        They must not be changed until ``write_appends``.
        """
        position = self.size
        if not self._unwritten:
            self._unwritten_at = position
        self._unwritten.append(data)
        self.size = position + size
        return position

    def write_appends(self) -> None:
        """Write what is unwritten, with one system call."""
        if not self._unwritten:
            return
        file = self._file
        if file is None:
            file = self._open()
        self.was_used = True
        unwritten, self._unwritten = self._unwritten, []
        position = self._unwritten_at
        # In a deleted file nothing would be kept. Behind a cut there would be a hole, and the file
        # as long as before: nobody would notice later.
        if self._now() - self._looked_at_s >= _LOOKED_AT_EVERY_S:
            self._look_at(file, position)
        file.ensure_length(position)
        if self.size > self._reserved_end and self.size - position >= _RESERVING_WRITE_BYTES_MIN:
            file.reserve(position, self.size - position + RESERVED_BYTES)
            self._reserved_end = self.size + RESERVED_BYTES
        if len(unwritten) == 1:
            file.write_at(position, unwritten[0])
        else:
            file.write_all_at(position, unwritten)

    def cut(self, size: int) -> None:
        """Cut the file, durably: removed bytes must not return after a crash."""
        file = self.file
        file.truncate(size)
        file.sync()
        self.size = size
        self._reserved_end = RESERVED_BYTES

    def release_reserved(self) -> None:
        """Write what is unwritten, and release the room reserved behind the end."""
        self.write_appends()
        if not self._was_opened:
            return
        if self._reserved_end > max(self.size, RESERVED_BYTES) or self._size_on_disk() > self.size:
            self.file.truncate(self.size)
            self._reserved_end = RESERVED_BYTES

    def _size_on_disk(self) -> int:
        """Return the length of the file, which need not be opened for that."""
        file = self._file
        return self._fs.stat(self.path).size if file is None else file.size()

    def close(self) -> None:
        """Drop the file; a later use opens it again.

        Its descriptor is closed with the last slice that is being sent from it: see ``OsFile``.
        """
        self._open_files.forget(self)
        self._file, self._was_opened = None, False

    def let_go(self) -> None:
        """Drop the file to save a descriptor; the next use opens it again."""
        self._file = None
