"""From the metadata log to the image: at start from the newest snapshot on, then batch by batch.

Every node that has the log has one of these, whether its controller is active or not. The listeners
are called with each change, one listener after another; a change has taken effect on this node when
all of them have returned.
"""

from __future__ import annotations

from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply, apply_in_steps
from dohle.protocol.schema import MetadataRecord
from dohle.raft.membership import MembershipHistory
from dohle.records.batch import CorruptBatch
from dohle.server.channel import ImageListener
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.metadata_log import CorruptMetadataLog, MetadataBatch, MetadataLog
from dohle.server.quorum.snapshots import (
    SnapshotId,
    list_snapshots,
    read_batches,
    read_control_records,
    snapshot_path,
)
from dohle.storage.files import FileSystem


class ImageLoader:
    """Keeps the image of this node."""

    def __init__(self, turns: Turns, fs: FileSystem, log: MetadataLog) -> None:
        self._turns = turns
        self._fs = fs
        self._log = log
        self._listeners: list[ImageListener] = []
        self.image: ClusterImage = EMPTY_IMAGE
        #: What the control records that were read say of the quorum.
        self.memberships = MembershipHistory()
        #: The size of all batches read from the log, without those of snapshots.
        self.bytes_read = 0

    @property
    def kraft_version(self) -> int:
        """The level of the quorum, which no metadata record tells."""
        return self.memberships.latest.kraft_version

    def subscribe(self, listener: ImageListener) -> None:
        """Call the listener with every change from now on."""
        self._listeners.append(listener)

    async def load(self) -> None:
        """Read the snapshot and the log from the disk, letting other tasks run in between."""
        offset = self._log.log.log_start_offset
        snapshots = list_snapshots(self._fs, self._log.folder)
        slices = Slices(self._turns)
        if snapshots:
            await self._load_snapshot(snapshots[-1], slices)
            offset = max(offset, snapshots[-1].end_offset)
        elif offset > 0:
            raise CorruptMetadataLog(
                f"{self._log.folder} begins at offset {offset} and has no snapshot of the records "
                "before it: copy the newest snapshot (*.checkpoint) of another node or a backup "
                "into this directory"
            )
        for batch in self._log.batches(offset):
            self._note(batch)
            self.image, _ = apply(self.image, batch.records, batch.last_offset, batch.epoch)
            await slices.give_way()

    async def _load_snapshot(self, snapshot: SnapshotId, slices: Slices) -> None:
        path = snapshot_path(self._log.folder, snapshot)
        try:
            self.memberships.note(snapshot.end_offset - 1, read_control_records(self._fs, path))
            for versioned in read_batches(self._fs, path):
                records: list[MetadataRecord] = [record for record, _ in versioned]
                last_offset = snapshot.end_offset - 1
                self.image, _ = apply(self.image, records, last_offset, snapshot.epoch)
                await slices.give_way()
        except CorruptBatch as error:
            raise CorruptMetadataLog(
                f"the snapshot {path} of the metadata log is damaged: {error.args[0]}. Restore it "
                "from a backup, or see what `dohle storage recover-metadata` can rebuild"
            ) from error

    async def take_in(self, batch: MetadataBatch) -> None:
        """Replay a committed batch, and return when it has taken effect on this node."""
        steps = apply_in_steps(self.image, batch.records, batch.last_offset, batch.epoch)
        image, delta = await Slices(self._turns).run(steps)
        self.image = image
        self._note(batch)
        for listener in self._listeners:
            await listener(image, delta)

    def _note(self, batch: MetadataBatch) -> None:
        self.bytes_read += batch.size
        self.memberships.note(batch.last_offset, batch.control)
