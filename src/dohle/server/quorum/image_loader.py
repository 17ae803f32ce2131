"""From the metadata log to the image: at start from the newest snapshot on, then batch by batch.

Every node that has the log has one of these, whether its controller is active or not. The listeners
are called with each change, one listener after another; a change has taken effect on this node when
all of them have returned.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dohle.metadata.delta import Delta, difference
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply, apply_in_steps
from dohle.protocol.schema import MetadataRecord
from dohle.raft.values import LeaderAndEpoch
from dohle.records.batch import CorruptBatch
from dohle.server.channel import ImageListener
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.metadata_log import CorruptMetadataLog, MetadataBatch
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.snapshots import SnapshotId, read_batches
from dohle.storage.files import FileSystem


class Foreseen(NamedTuple):
    """What the image will be once some records are committed, by whoever has appended them."""

    #: How many they are; the last one's offset and epoch are the image's.
    record_count: int
    image: ClusterImage
    delta: Delta


class ImageLoader:
    """Keeps the image of this node."""

    def __init__(self, turns: Turns, fs: FileSystem, log: RaftLog) -> None:
        self._turns = turns
        self._fs = fs
        self._log = log
        self._listeners: list[ImageListener] = []
        self.image: ClusterImage = EMPTY_IMAGE
        #: The size of all batches read from the log, without those of snapshots.
        self.bytes_read = 0
        #: When the last batch was appended, as it says itself.
        self.timestamp = -1
        self._foreseen: deque[Foreseen] = deque()
        self._is_publishing = False
        self._applied_offset = -1

    @property
    def applied_offset(self) -> int:
        """The last offset that all listeners have taken in (R123)."""
        return self._applied_offset if self._is_publishing else self.image.offset

    @property
    def kraft_version(self) -> int:
        """The ``kraft.version`` in force, which no metadata record has."""
        return self._log.memberships.latest.kraft_version

    def subscribe(self, listener: ImageListener) -> None:
        """Call the listener with every change from now on."""
        self._listeners.append(listener)

    async def load(self) -> None:
        """Read the snapshot and the log from the disk, letting other tasks run in between."""
        await self.load_snapshot()
        slices = Slices(self._turns)
        for batch in self._log.batches(max(self._log.start_offset, self.image.offset + 1)):
            self._note(batch)
            self.image, _ = apply(self.image, batch.records, batch.last_offset, batch.epoch)
            await slices.give_way()

    async def load_snapshot(self) -> None:
        """Read the newest snapshot, if there is one: that is surely committed."""
        latest = self._log.store.latest
        if latest is not None:
            self.image = await self._read_snapshot(latest, Slices(self._turns))

    async def _read_snapshot(self, snapshot: SnapshotId, slices: Slices) -> ClusterImage:
        path = self._log.store.path(snapshot)
        image = EMPTY_IMAGE
        try:
            self.timestamp = self._log.store.last_contained_log_timestamp(snapshot)
            for versioned in read_batches(self._fs, path):
                records: list[MetadataRecord] = [record for record, _ in versioned]
                last_offset = snapshot.end_offset - 1
                image, _ = apply(image, records, last_offset, snapshot.epoch)
                await slices.give_way()
            return image
        except CorruptBatch as error:
            raise CorruptMetadataLog(
                f"the snapshot {path} of the metadata log is damaged: {error.args[0]}. Restore it "
                "from a backup, or see what `dohle storage recover-metadata` can rebuild"
            ) from error

    # What the quorum tells

    async def on_commit(self, batch: MetadataBatch) -> None:
        """Replay a committed batch, and return when it has taken effect on this node."""
        foreseen = self._take_foreseen(batch)
        if foreseen is not None:
            image, delta = foreseen.image, foreseen.delta
        else:
            steps = apply_in_steps(self.image, batch.records, batch.last_offset, batch.epoch)
            image, delta = await Slices(self._turns).run(steps)
        self._note(batch)
        await self._publish(image, delta)

    def foresee(self, foreseen: Foreseen) -> None:
        """Take what comes next, so that it need not be replayed again."""
        self._foreseen.append(foreseen)

    def forget_foreseen(self) -> None:
        """Do not count on what was foreseen: it may not come."""
        self._foreseen.clear()

    def _take_foreseen(self, batch: MetadataBatch) -> Foreseen | None:
        found = None
        while self._foreseen and self._foreseen[0].image.offset <= batch.last_offset:
            found = self._foreseen.popleft()
        if found is None or found.record_count != len(batch.records):
            return None
        is_this = (found.image.offset, found.image.epoch) == (batch.last_offset, batch.epoch)
        return found if is_this else None

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        """Read the snapshot, and return when all that differs has taken effect on this node."""
        self.forget_foreseen()
        image = await self._read_snapshot(snapshot, Slices(self._turns))
        await self._publish(image, difference(self.image, image))

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The image does not depend on who leads."""

    def on_failure(self, reason: str) -> None:
        """The image stays as it is."""

    async def _publish(self, image: ClusterImage, delta: Delta) -> None:
        self._applied_offset, self._is_publishing = self.image.offset, True
        self.image = image
        for listener in self._listeners:
            await listener(image, delta)
        self._is_publishing = False

    def _note(self, batch: MetadataBatch) -> None:
        self.bytes_read += batch.size
        self.timestamp = batch.timestamp
