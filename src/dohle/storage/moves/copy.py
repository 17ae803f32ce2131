"""Copying the files of a log that goes on, piece by piece, where blocking does no harm.

A piece is a run of bytes that cannot change any more: all of a closed segment's file, or as much of
the active one's as had been written when the piece was planned. So the copy needs nothing but paths
and numbers, and may run in any thread beside the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dohle.storage.directory.partition_dirs import PARTITION_METADATA
from dohle.storage.files import FileSystem, join, parent, sync_file
from dohle.storage.leader_epochs import EpochEntry, write_leader_epochs

_CHUNK_BYTES = 1 << 20


class CopyFailed(Exception):
    """A disk has failed: the one that was read from, or the one that was written to."""

    def __init__(self, error: OSError, *, of_source: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.of_source = of_source


class Piece(NamedTuple):
    """Some bytes of a file. From position 0 on, the copy is made anew."""

    name: str
    start: int
    #: None is the whole of a file that is replaced in one step or not at all.
    end: int | None

    @property
    def size(self) -> int:
        """How many bytes it is, if that is known; else 0."""
        return 0 if self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class CopyJob:
    """What is to be copied next; ``run`` touches nothing but the files."""

    fs: FileSystem
    source: str
    target: str
    pieces: tuple[Piece, ...]
    #: To be written as they are, if not None.
    leader_epochs: tuple[EpochEntry, ...] | None = None
    #: Copies that are to go.
    unwanted: tuple[str, ...] = ()
    #: Return only when the copies are on the disk, ...
    sync: bool = False
    #: ... and their names, and the folder's.
    sync_names: bool = False
    #: The files' times of last change are to be the same: retention may go by them.
    keep_mtime: bool = False

    @property
    def size(self) -> int:
        """How many bytes are to be copied, as far as that is known."""
        return sum(piece.size for piece in self.pieces)

    def run(self) -> tuple[str, ...]:
        """Copy; return the names that were not there any more. CopyFailed if a disk fails."""
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
