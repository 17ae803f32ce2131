"""The snapshots of the metadata log that are on this node's disk, and known in memory.

A name ending in ``.checkpoint`` stands for a whole snapshot: what is being written or downloaded is
called ``.part``, what is to be removed ``.deleted`` (for a minute, while somebody may be reading
it). At a start both kinds are removed, and so are snapshots from before the log's start (R64).
"""

from __future__ import annotations

from bisect import insort

from dohle.protocol.messages.records.control import SnapshotHeaderRecord
from dohle.records.control import ControlRecordType
from dohle.server.quorum.part_file import PART_SUFFIX, PartFile
from dohle.server.quorum.snapshots import (
    SnapshotId,
    list_snapshots,
    read_control_records,
    snapshot_path,
)
from dohle.storage.directory.delayed_deletions import DelayedDeletions
from dohle.storage.files import FileSystem, join
from dohle.storage.segment.file_names import DELETED_SUFFIX

_DELETE_DELAY_MS = 60_000
_LEFT_OVER = (".checkpoint" + PART_SUFFIX, ".checkpoint" + DELETED_SUFFIX)


class SnapshotStore:
    """The snapshots in the folder of the metadata log."""

    def __init__(self, fs: FileSystem, folder: str, deletions: DelayedDeletions) -> None:
        self._fs = fs
        self._folder = folder
        self._deletions = deletions
        for entry in sorted(fs.list_dir(folder)):
            if entry.name.endswith(_LEFT_OVER):
                fs.remove(join(folder, entry.name))
        #: Oldest first.
        self.ids: list[SnapshotId] = list_snapshots(fs, folder)
        self._sizes = {each: fs.stat(self.path(each)).size for each in self.ids}

    @property
    def latest(self) -> SnapshotId | None:
        """The newest."""
        return self.ids[-1] if self.ids else None

    @property
    def earliest(self) -> SnapshotId | None:
        """The oldest that is left."""
        return self.ids[0] if self.ids else None

    def path(self, snapshot: SnapshotId) -> str:
        """Return where a snapshot is."""
        return snapshot_path(self._folder, snapshot)

    def size(self, snapshot: SnapshotId) -> int | None:
        """Return its length in bytes; None if there is no such snapshot."""
        return self._sizes.get(snapshot)

    @property
    def total_size(self) -> int:
        """The length of all together."""
        return sum(self._sizes.values())

    def last_contained_log_timestamp(self, snapshot: SnapshotId) -> int:
        """Return how old the newest batch in it is, as its header says; -1 if it has none."""
        for type, value in read_control_records(self._fs, self.path(snapshot)):
            if type is ControlRecordType.SNAPSHOT_HEADER:
                return SnapshotHeaderRecord.decode(0, value)[0].last_contained_log_timestamp
        return -1

    def read(self, snapshot: SnapshotId, position: int, size: int) -> bytes:
        """Return a chunk, which may cut batches; FileNotFoundError if the snapshot is gone."""
        file = self._fs.open(self.path(snapshot))
        try:
            return file.read_at(position, size)
        finally:
            file.close()

    def begin_download(self, snapshot: SnapshotId) -> PartFile:
        """Begin to take in a snapshot of the leader's; ``note`` it when it is complete."""
        return PartFile(self._fs, self._folder, snapshot)

    def note(self, snapshot: SnapshotId) -> None:
        """Take in that a snapshot was completed."""
        if snapshot not in self._sizes:
            insort(self.ids, snapshot)
        self._sizes[snapshot] = self._fs.stat(self.path(snapshot)).size

    def remove_before(self, end_offset: int) -> None:
        """Remove the snapshots that end before an offset."""
        gone = [each for each in self.ids if each.end_offset < end_offset]
        if not gone:
            return
        self.ids = self.ids[len(gone) :]
        paths = [self.path(each) for each in gone]
        for snapshot, path in zip(gone, paths, strict=True):
            del self._sizes[snapshot]
            self._fs.rename(path, path + DELETED_SUFFIX)
        self._deletions.add([path + DELETED_SUFFIX for path in paths], _DELETE_DELAY_MS)
