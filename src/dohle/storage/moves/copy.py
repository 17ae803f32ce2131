"""Copying the files of a log that is in use, piece by piece, in a thread that may block.

A piece is a range of bytes that cannot change any more: the whole file of a closed segment, or as
much of the active one as had been written when the piece was planned. So copying needs only paths
and numbers, and may run in any thread while the log is in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dohle.storage.directory.partition_dirs import PARTITION_METADATA
from dohle.storage.files import FileSystem, join, parent, sync_file
from dohle.storage.leader_epochs import EpochEntry, write_leader_epochs

_CHUNK_BYTES = 1 << 20


class CopyFailed(Exception):
    """A disk has failed: that of the source or that of the target."""

    def __init__(self, error: OSError, *, of_source: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.of_source = of_source


class Piece(NamedTuple):
    """A range of a file. A piece at position 0 begins the copy anew."""

    name: str
    start: int
    #: None means the whole of a file that is only ever replaced atomically.
    end: int | None

    @property
    def size(self) -> int:
        """How many bytes it has, if that is known; else 0."""
        return 0 if self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class ReplicaCopyJob:
    """What to copy next; ``run`` uses nothing but the files."""

    fs: FileSystem
    source: str
    target: str
    pieces: tuple[Piece, ...]
    #: The leader epochs to write, if not None.
    leader_epochs: tuple[EpochEntry, ...] | None = None
    #: Copies to remove.
    unwanted: tuple[str, ...] = ()
    #: Whether to sync the copies, ...
    sync: bool = False
    #: ... and their names, and that of the folder.
    sync_names: bool = False
    #: Whether to keep the files' modification times: retention may depend on them.
    keep_mtime: bool = False

    @property
    def size(self) -> int:
        """How many bytes there are to copy, as far as that is known."""
        return sum(piece.size for piece in self.pieces)

    def run(self) -> tuple[str, ...]:
        """Copy; return the names of files that are gone. CopyFailed if a disk fails."""
        missing = tuple(piece.name for piece in self.pieces if not self._copy(piece))
        try:
            if self.leader_epochs is not None:
                write_leader_epochs(self.fs, self.target, self.leader_epochs)
            for name in self.unwanted:
                self.fs.remove(join(self.target, name))
            if self.sync_names:
                sync_file(self.fs, join(self.target, PARTITION_METADATA))
                self.fs.sync_dir(self.target)
                self.fs.sync_dir(parent(self.target))
        except OSError as error:
            raise CopyFailed(error, of_source=False) from error
        return missing

    def _copy(self, piece: Piece) -> bool:
        path = join(self.source, piece.name)
        try:
            source = self.fs.open(path)
            end = source.size() if piece.end is None else piece.end
            mtime_ms = self.fs.stat(path).mtime_ms
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CopyFailed(error, of_source=True) from error
        copy = join(self.target, piece.name)
        try:
            target = self.fs.open(copy, write=True, create=True)
            try:
                if piece.start == 0:
                    target.truncate(0)
                for position in range(piece.start, end, _CHUNK_BYTES):
                    size = min(_CHUNK_BYTES, end - position)
                    try:
                        data = source.read_at(position, size)
                    except OSError as error:
                        raise CopyFailed(error, of_source=True) from error
                    target.write_at(position, data)
                if self.sync:
                    target.sync()
            finally:
                target.close()
            if self.keep_mtime:
                self.fs.set_mtime(copy, mtime_ms)
        except OSError as error:
            raise CopyFailed(error, of_source=False) from error
        finally:
            source.close()
        return True
