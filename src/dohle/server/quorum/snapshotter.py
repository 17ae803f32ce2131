"""Deciding when a snapshot is due, writing it, and removing what it makes superfluous.

A snapshot is written every ``metadata.log.max.record.bytes.between.snapshots`` bytes or
``metadata.log.max.snapshot.interval.ms``. It is written in a thread: an image never changes.
Segments and snapshots that a newer snapshot covers are removed when all together exceed
``metadata.max.retention.bytes``, or when the last record in the oldest snapshot is older than
``metadata.max.retention.ms``: that is looked at once a minute, and after each snapshot (R99).
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Task, wait
from collections.abc import Awaitable, Callable

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import KafkaError
from dohle.core.seams import Clock
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.metadata.snapshot import snapshot_records
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.snapshots import SnapshotId, write_snapshot
from dohle.storage.files import FileSystem

logger = logging.getLogger("dohle.server")

RunInThread = Callable[[Callable[[], None]], Awaitable[None]]

_CLEANING_MS = 60_000


class Snapshotter:
    """Writes snapshots of a node's image, one at a time."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        fs: FileSystem,
        log: RaftLog,
        images: ImageLoader,
        config: BrokerConfig,
        clock: Clock,
        *,
        run_in_thread: RunInThread,
        on_log_changed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._fs = fs
        self._log = log
        self._images = images
        self._config = config
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._on_log_changed = on_log_changed
        # What was read at start is behind the newest snapshot, so it counts towards the next.
        self._latest: SnapshotId | None = None
        self._bytes_covered = 0
        self._last_ms = clock.now_ms()
        self._clean_due_ms = clock.monotonic_ms() + _CLEANING_MS
        self._writing: Task[None] | None = None

    async def on_image(self, image: ClusterImage, delta: Delta) -> None:
        """After a change of the image, write a snapshot if one is due."""
        self.write_if_due()

    def write_if_due(self) -> None:
        """Start writing a snapshot if one is due and none is being written."""
        if self._clean_due_ms <= self._clock.monotonic_ms():
            self._remove_superfluous()
        if self._writing is None and self._is_due():
            self._writing = self._loop.create_task(self._write())
            self._writing.add_done_callback(self._written)

    def _is_due(self) -> bool:
        latest = self._log.store.latest
        if latest is not None and latest.end_offset > self._images.image.offset:
            # The image is that of a snapshot, or is still to be made of one.
            if latest != self._latest:
                self._count_from(latest, self._images.bytes_read, self._clock.now_ms())
            return False
        unread = self._images.bytes_read - self._bytes_covered
        if unread == 0 or self._images.image.transaction is not None:
            return False
        if unread >= self._config.get_int("metadata.log.max.record.bytes.between.snapshots"):
            return True
        interval_ms = self._config.get_int("metadata.log.max.snapshot.interval.ms")
        return 0 < interval_ms <= self._clock.now_ms() - self._last_ms

    def _count_from(self, latest: SnapshotId, bytes_read: int, now_ms: int) -> None:
        """Take a snapshot, made here or fetched, for the last one (R95)."""
        self._latest, self._bytes_covered, self._last_ms = latest, bytes_read, now_ms

    async def _write(self) -> None:
        image, bytes_read, now_ms = (
            self._images.image,
            self._images.bytes_read,
            self._clock.now_ms(),
        )
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        path = self._log.store.path(snapshot)
        membership = self._log.memberships.at(image.offset)
        timestamp = self._images.timestamp

        def write() -> None:
            records = snapshot_records(image)
            write_snapshot(
                self._fs, path, records, membership, epoch=snapshot.epoch, timestamp=timestamp
            )

        await self._run_in_thread(write)
        self._log.store.note(snapshot)
        # Meanwhile the leader's snapshot may have taken the log's place.
        self._log.store.remove_before(self._log.start_offset)
        self._log.memberships.forget_before(image.offset)
        self._count_from(snapshot, bytes_read, now_ms)
        self._remove_superfluous()
        self._on_log_changed()

    def _written(self, task: Task[None]) -> None:
        self._writing = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError | KafkaError):
            logger.error(
                "a metadata snapshot could not be written to %s: %s. Nothing is lost, but the"
                " metadata log grows until this succeeds: check the disk.",
                self._log.folder,
                error,
            )
        elif error is not None:
            logger.error(
                "a metadata snapshot could not be written to %s. Nothing is lost, but the metadata"
                " log grows until this succeeds. Please report this.",
                self._log.folder,
                exc_info=error,
            )

    def _remove_superfluous(self) -> None:
        self._clean_due_ms = self._clock.monotonic_ms() + _CLEANING_MS
        store = self._log.store
        while len(store.ids) > 1 and self._is_superfluous(store.ids[0]):
            self._log.forget_before(store.ids[1])
            self._on_log_changed()

    def _is_superfluous(self, oldest: SnapshotId) -> bool:
        store = self._log.store
        bytes_max = self._config.get_int("metadata.max.retention.bytes")
        ms_max = self._config.get_int("metadata.max.retention.ms")
        if 0 <= bytes_max < self._log.log.size + store.total_size:
            return True
        age_ms = self._clock.now_ms() - store.last_contained_log_timestamp(oldest)
        return 0 <= ms_max < age_ms

    async def stop(self) -> None:
        """Return when no snapshot is being written."""
        if self._writing is not None:
            await wait([self._writing])
