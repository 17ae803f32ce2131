"""Indexes of remote segments on the local disk: so many bytes of them, those used last (T10).

The files are named as Kafka names them, and are found again after a restart. What is cached is
decided on the loop; ``load`` and ``remove`` block, and run in threads.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from dohle.core.ids import Uuid
from dohle.core.uuid import uuid_from_text, uuid_to_text
from dohle.storage.files import FileSystem, join, write_atomically
from dohle.storage.segment.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from dohle.tiering.layout import (
    INDEXES,
    MANIFEST,
    OFFSET,
    TIMESTAMP,
    TRANSACTION,
    InvalidManifest,
    decode_manifest,
    object_key,
)
from dohle.tiering.segments import RemoteSegment
from dohle.tiering.store import ObjectStore, StoreError

_SUFFIXES = {OFFSET: INDEX_SUFFIX, TIMESTAMP: TIME_INDEX_SUFFIX, TRANSACTION: TXN_INDEX_SUFFIX}


class CachedIndexes(NamedTuple):
    """Where the indexes of a segment are on the local disk, and how large they are."""

    offset: str
    time: str
    txn: str
    size: int

    @property
    def paths(self) -> tuple[str, str, str]:
        """The three files."""
        return self.offset, self.time, self.txn


class IndexCache:
    """Which indexes are on the disk."""

    def __init__(self, files: FileSystem, folder: str, bytes_max: int) -> None:
        self._files = files
        self._folder = folder
        self._bytes_max = bytes_max
        #: Those used last come last.
        self._cached: OrderedDict[Uuid, CachedIndexes] = OrderedDict()
        self.size = 0

    def open(self) -> None:
        """Find what an earlier run has left; incomplete ones are removed."""
        self._files.make_dirs(self._folder)
        found: dict[str, set[str]] = {}
        for entry in self._files.list_dir(self._folder):
            stem, _, suffix = entry.name.partition(".")
            if "." + suffix in _SUFFIXES.values():
                found.setdefault(stem, set()).add("." + suffix)
            else:
                self._files.remove(join(self._folder, entry.name))
        for stem, suffixes in found.items():
            paths = [join(self._folder, stem + suffix) for suffix in _SUFFIXES.values()]
            segment_id = _id_in(stem)
            if segment_id is None or len(suffixes) < len(_SUFFIXES):
                self.remove([path for path in paths if self._files.exists(path)])
                continue
            size = sum(self._files.stat(path).size for path in paths)
            self._keep(segment_id, CachedIndexes(paths[0], paths[1], paths[2], size))
        self.remove(self._evicted())

    def get(self, segment: RemoteSegment) -> CachedIndexes | None:
        """Return the indexes of a segment, if they are here."""
        found = self._cached.get(segment.id)
        if found is not None:
            self._cached.move_to_end(segment.id)
        return found

    def add(self, segment: RemoteSegment, indexes: CachedIndexes) -> list[str]:
        """Take note of loaded indexes; return the files that are to be removed to make room."""
        self._keep(segment.id, indexes)
        return self._evicted()

    def _keep(self, segment_id: Uuid, indexes: CachedIndexes) -> None:
        old = self._cached.pop(segment_id, None)
        self.size += indexes.size - (0 if old is None else old.size)
        self._cached[segment_id] = indexes

    def _evicted(self) -> list[str]:
        paths: list[str] = []
        while self.size > self._bytes_max and len(self._cached) > 1:
            _, gone = self._cached.popitem(last=False)
            self.size -= gone.size
            paths += gone.paths
        return paths

    def forget(self, segment: RemoteSegment) -> list[str]:
        """Return the files of a segment that is gone, which are to be removed."""
        gone = self._cached.pop(segment.id, None)
        if gone is None:
            return []
        self.size -= gone.size
        return list(gone.paths)

    # In threads

    def load(self, store: ObjectStore, segment: RemoteSegment, prefix: str) -> CachedIndexes:
        """Fetch the indexes of a segment; StoreError if that cannot be done."""
        try:
            manifest = decode_manifest(store.get(object_key(segment, MANIFEST, prefix)))
        except InvalidManifest as error:
            raise StoreError(f"the manifest of {segment.segment_id}: {error}") from error
        key, size = object_key(segment, INDEXES, prefix), 0
        stem = join(self._folder, f"{segment.start_offset}_{uuid_to_text(segment.id)}")
        paths = {}
        try:
            for kind, suffix in _SUFFIXES.items():
                place = manifest.indexes.get(kind, (0, 0))
                data = store.get(key, *place) if place[1] else b""
                if len(data) != place[1]:
                    raise StoreError(f"{key} is shorter than its manifest says")
                paths[kind] = stem + suffix
                # They are used after a power cut, too: an index that is empty by then would be
                # taken for that of a segment without aborted transactions.
                write_atomically(self._files, paths[kind], data, sync_name=False)
                size += len(data)
        except OSError as error:
            raise StoreError(f"{stem} cannot be written: {error}") from error
        return CachedIndexes(paths[OFFSET], paths[TIMESTAMP], paths[TRANSACTION], size)

    def remove(self, paths: list[str]) -> None:
        """Remove files that are not cached any more."""
        for path in paths:
            if self._files.exists(path):
                self._files.remove(path)


def _id_in(stem: str) -> Uuid | None:
    _, _, text = stem.partition("_")
    try:
        return uuid_from_text(text)
    except ValueError:
        return None
