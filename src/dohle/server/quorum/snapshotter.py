"""Deciding when a snapshot is due, writing it, and removing what it makes superfluous.

A snapshot is written every ``metadata.log.max.record.bytes.between.snapshots`` bytes or
``metadata.log.max.snapshot.interval.ms``. It is written in a thread: an image never changes.
Segments and snapshots that a newer snapshot covers are removed when all together exceed
``metadata.max.retention.bytes``, or when they are older than ``metadata.max.retention.ms``.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Task, wait

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import KafkaError
from dohle.core.seams import Clock
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.metadata.snapshot import snapshot_records
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.metadata_log import MetadataLog
from dohle.server.quorum.quorum import RunInThread
from dohle.server.quorum.snapshots import (
    SnapshotId,
    list_snapshots,
    snapshot_path,
    write_snapshot,
)
from dohle.storage.files import FileSystem

logger = logging.getLogger("dohle.server")


class Snapshotter:
    """Writes snapshots of a node's image, one at a time."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        fs: FileSystem,
        log: MetadataLog,
        images: ImageLoader,
        config: BrokerConfig,
        clock: Clock,
        *,
        run_in_thread: RunInThread,
    ) -> None:
        self._loop = loop
        self._fs = fs
        self._log = log
        self._images = images
        self._config = config
        self._clock = clock
        self._run_in_thread = run_in_thread
        # What was read at start is behind the newest snapshot, so it counts towards the next.
        self._bytes_covered = 0
        self._last_ms = clock.now_ms()
        self._writing: Task[None] | None = None

    async def on_image(self, image: ClusterImage, delta: Delta) -> None:
        """After a change of the image, write a snapshot if one is due."""
        self.write_if_due()

    def write_if_due(self) -> None:
        """Start writing a snapshot if one is due and none is being written."""
        if self._writing is None and self._is_due():
            self._writing = self._loop.create_task(self._write())
            self._writing.add_done_callback(self._written)

    def _is_due(self) -> bool:
        unread = self._images.bytes_read - self._bytes_covered
        if unread == 0 or self._images.image.transaction is not None:
            return False
        if unread >= self._config.get_int("metadata.log.max.record.bytes.between.snapshots"):
            return True
        interval_ms = self._config.get_int("metadata.log.max.snapshot.interval.ms")
        return 0 < interval_ms <= self._clock.now_ms() - self._last_ms

    async def _write(self) -> None:
        image, bytes_read, now_ms = (
            self._images.image,
            self._images.bytes_read,
            self._clock.now_ms(),
        )
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        path = snapshot_path(self._log.folder, snapshot)
        membership = self._images.memberships.at(image.offset)

        def write() -> None:
            records = snapshot_records(image)
            write_snapshot(
                self._fs, path, records, membership, epoch=snapshot.epoch, timestamp=now_ms
            )

        await self._run_in_thread(write)
        self._images.memberships.forget_before(image.offset)
        self._bytes_covered, self._last_ms = bytes_read, now_ms
        self._remove_superfluous(now_ms)

    def _written(self, task: Task[None]) -> None:
        self._writing = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError | KafkaError):
            logger.error(
                "a metadata snapshot could not be written to %s: %s. Nothing is lost, but the"
                " metadata log grows until one can be: check the disk.",
                self._log.folder,
                error,
            )
        elif error is not None:
            logger.error(
                "a metadata snapshot could not be written to %s. Nothing is lost, but the metadata"
                " log grows until one can be. Please report this.",
                self._log.folder,
                exc_info=error,
            )

    def _remove_superfluous(self, now_ms: int) -> None:
        bytes_max = self._config.get_int("metadata.max.retention.bytes")
        ms_max = self._config.get_int("metadata.max.retention.ms")
        folder = self._log.folder
        snapshots = list_snapshots(self._fs, folder)
        while len(snapshots) > 1:
            stats = [self._fs.stat(snapshot_path(folder, each)) for each in snapshots]
            size = self._log.log.size + sum(stat.size for stat in stats)
            too_large = 0 <= bytes_max < size
            too_old = 0 <= ms_max < now_ms - stats[0].mtime_ms
            if not (too_large or too_old):
                return
            self._fs.remove(snapshot_path(folder, snapshots.pop(0)))
            self._log.forget_before(snapshots[0].end_offset)

    async def stop(self) -> None:
        """Return when no snapshot is being written."""
        if self._writing is not None:
            await wait([self._writing])
