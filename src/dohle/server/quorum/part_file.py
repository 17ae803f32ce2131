"""A snapshot on its way from the leader: ``….checkpoint.part`` until the last byte has come (R57).

The leader sends it in chunks that may cut batches, so nothing is checked but where each belongs.
A part file that a crash or a new leader left behind is worthless: the next download begins anew.
"""

from __future__ import annotations

from dohle.server.quorum.snapshots import SnapshotId, snapshot_path
from dohle.storage.files import Buffer, FileSystem

PART_SUFFIX = ".part"


class PartFile:
    """One download. Each call may block."""

    def __init__(self, fs: FileSystem, folder: str, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self._fs = fs
        self._folder = folder
        self._path = snapshot_path(folder, snapshot)
        self._file = fs.open(self._path + PART_SUFFIX, write=True, create=True)
        self._file.truncate(0)
        #: How many bytes have come: where the next chunk begins.
        self.size = 0

    def append(self, chunk: Buffer) -> None:
        """Write the next chunk."""
        self._file.write_at(self.size, chunk)
        self.size += len(chunk)

    def finish(self) -> None:
        """Make a snapshot of it; it is on the disk when this returns."""
        try:
            self._file.sync()
        finally:
            self._file.close()
        self._fs.rename(self._path + PART_SUFFIX, self._path)
        self._fs.sync_dir(self._folder)

    def discard(self) -> None:
        """Remove what has come."""
        self._file.close()
        self._fs.remove(self._path + PART_SUFFIX)
