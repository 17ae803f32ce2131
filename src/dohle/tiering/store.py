"""The seam to the object store, and the one that needs nothing installed: a folder.

A store keeps immutable objects by key. All calls block, and are made in threads. ``StoreError``
says that it may work later, ``ObjectNotFound`` that there is no such object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from dohle.storage.files import FileSystem, join, parent

#: So much of an object is in memory while it is written.
PIECE_BYTES: Final = 1024 * 1024


class StoreError(Exception):
    """The store does not do it now; says what and why."""


class ObjectNotFound(StoreError):
    """There is no such object."""


class StoredObject(NamedTuple):
    """An object of a listing."""

    key: str
    size: int


class ObjectStore(Protocol):
    """Where segments are kept beside the disks of the brokers."""

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """Keep an object, durably, in place of any that has its key; all of it, or nothing."""

    def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Return a range of an object, or all from ``start`` on; less only where it ends."""

    def delete(self, key: str) -> None:
        """Delete an object; it is no error if there is none."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Return the objects whose keys begin so, in any order."""


class FolderStore:
    """Objects as files of a folder, on a disk or a share that all brokers see."""

    def __init__(self, files: FileSystem, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/") or "/"

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write a file under another name, and rename it when it is on the disk."""
        path = self._path(key)
        temporary = path + ".tmp"
        try:
            self._make_folder(parent(path))
            file = self._files.open(temporary, write=True, create=True)
            try:
                file.truncate(0)
                position = 0
                for piece in pieces:
                    file.write_at(position, piece)
                    position += len(piece)
                file.sync()
            finally:
                file.close()
            self._files.rename(temporary, path)
            self._files.sync_dir(parent(path))
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error}") from error

    def _path(self, key: str) -> str:
        if ".." in key.split("/"):
            raise StoreError(f"{key} leads out of {self._root}")
        return join(self._root, key)

    def _make_folder(self, folder: str) -> None:
        missing = []
        while not self._files.exists(folder) and folder != parent(folder):
            missing.append(folder)
            folder = parent(folder)
        for each in reversed(missing):
            self._files.make_dirs(each)
            self._files.sync_dir(parent(each))

    def get(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Read from a file."""
        path = self._path(key)
        try:
            file = self._files.open(path)
            try:
                return file.read_at(start, file.size() - start if size is None else size)
            finally:
                file.close()
        except FileNotFoundError as error:
            raise ObjectNotFound(f"{path} is not there") from error
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error}") from error

    def delete(self, key: str) -> None:
        """Remove a file, and what a broken write has left of it."""
        path = self._path(key)
        try:
            for each in (path + ".tmp", path):
                if self._files.exists(each):
                    self._files.remove(each)
            if self._files.exists(parent(path)):
                self._files.sync_dir(parent(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{path} cannot be removed: {error}") from error

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Walk through the folders below the one that the prefix names."""
        folder, _, name = prefix.rpartition("/")
        try:
            for found in self._walk(folder):
                if found.key.startswith(prefix):
                    yield found
        except OSError as error:
            raise StoreError(f"{folder}/{name} cannot be listed: {error}") from error

    def _walk(self, folder: str) -> Iterator[StoredObject]:
        path = self._path(folder) if folder else self._root
        try:
            entries = self._files.list_dir(path)
        except FileNotFoundError:
            return
        for entry in entries:
            key = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir:
                yield from self._walk(key)
            else:
                yield StoredObject(key, self._files.stat(join(self._root, key)).size)
