"""Copying a segment to the store, and deleting it there: work for threads, on immutable jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dohle.records.batch import CorruptBatch
from dohle.storage.files import FileSystem
from dohle.tiering.layout import (
    EPOCHS,
    INDEX_KINDS,
    INDEXES,
    LOG,
    MANIFEST,
    OFFSET,
    SNAPSHOT,
    TIMESTAMP,
    TRANSACTION,
    encode_manifest,
    index_places,
    object_key,
)
from dohle.tiering.segments import RemoteSegment
from dohle.tiering.store import PIECE_BYTES, ObjectStore, StoreError
from dohle.tiering.verifying import check_batches


@dataclass(frozen=True, slots=True)
class CopyJob:
    """A closed segment to be copied, with all that belongs to it (T3.6)."""

    segment: RemoteSegment
    log_path: str
    offset_index_path: str
    time_index_path: str
    #: None if no transaction of the segment was aborted.
    txn_index_path: str | None
    snapshot_path: str
    #: All epochs up to its end, as a checkpoint file has them.
    epochs: bytes
    prefix: str = ""

    def run(self, files: FileSystem, store: ObjectStore) -> None:
        """Write the three objects, the manifest last; StoreError if that cannot be done."""
        try:
            self._check(files)
            parts = self._indexes(files)
        except OSError as error:
            raise StoreError(f"the files of {self.segment.segment_id} are gone: {error}") from error
        except CorruptBatch as error:
            raise StoreError(f"{self.log_path} is damaged, and is not copied: {error}") from error
        store.put(object_key(self.segment, LOG, self.prefix), self._log(files))
        ordered = (parts[kind] for kind in INDEX_KINDS if kind in parts)
        store.put(object_key(self.segment, INDEXES, self.prefix), ordered)
        manifest = encode_manifest(self.segment, index_places(parts))
        store.put(object_key(self.segment, MANIFEST, self.prefix), [manifest])

    def _check(self, files: FileSystem) -> None:
        """Raise CorruptBatch if the log is not what was appended.

        Once it is copied all replicas delete theirs, which may be the ones that are good.
        """
        file = files.open(self.log_path)
        try:
            check_batches(file, self.segment)
        finally:
            file.close()

    def _indexes(self, files: FileSystem) -> dict[str, bytes]:
        parts = {
            OFFSET: files.read(self.offset_index_path),
            TIMESTAMP: files.read(self.time_index_path),
            SNAPSHOT: files.read(self.snapshot_path),
            EPOCHS: self.epochs,
        }
        if self.txn_index_path is not None:
            parts[TRANSACTION] = files.read(self.txn_index_path)
        return parts

    def _log(self, files: FileSystem) -> Iterator[bytes]:
        left = self.segment.size
        try:
            file = files.open(self.log_path)
            try:
                while left > 0:
                    piece = file.read_at(self.segment.size - left, min(PIECE_BYTES, left))
                    if not piece:
                        raise StoreError(f"{self.log_path} is shorter than it was")
                    left -= len(piece)
                    yield piece
            finally:
                file.close()
        except OSError as error:
            raise StoreError(f"{self.log_path} cannot be read: {error}") from error


def delete_objects(store: ObjectStore, segment: RemoteSegment, prefix: str = "") -> None:
    """Delete a segment: the manifest first, so that what is left is not taken for whole."""
    for suffix in (MANIFEST, INDEXES, LOG):
        store.delete(object_key(segment, suffix, prefix))
