"""One entry of ``log.dirs``: its lock, its identity, and the logs in it.

It is made of parts: whether its disk works (``disk_status``), the names of its folders
(``folders``), offsets kept beside the logs (``directory_checkpoints``), what is to be removed later
(``delayed_deletions``), and replicas that move in and out (``future_replicas``). Here logs are
opened, created and deleted. A directory that is offline is never marked as closed cleanly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from dohle.core.errors import KafkaError
from dohle.core.ids import TopicPartition, Uuid
from dohle.core.seams import Clock, Rng
from dohle.core.steps import PlainSteps, Steps
from dohle.storage.config import LogConfig
from dohle.storage.directory.clean_shutdown import (
    has_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from dohle.storage.directory.delayed_deletions import DelayedDeletions
from dohle.storage.directory.directory_checkpoints import (
    DirectoryCheckpoints,
    KnownOffsets,
    blocking,
)
from dohle.storage.directory.disk_space import DiskSpace
from dohle.storage.directory.disk_status import DiskStatus
from dohle.storage.directory.folders import PartitionFolders
from dohle.storage.directory.future_replicas import FutureReplicas
from dohle.storage.directory.load_progress import LoadProgress
from dohle.storage.directory.loader import LoadOptions, load_log
from dohle.storage.directory.partition_dirs import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_INDEX_CACHE,
    CorruptPartitionMetadata,
    NotAPartitionDir,
    PartitionDirKind,
    parse_partition_dir,
    partition_dir_name,
    read_partition_metadata,
    write_partition_metadata,
)
from dohle.storage.directory.pending_flush import (
    SYNCED_SINGLY_MAX,
    PendingClose,
    PendingFlush,
    take_due_flushes,
)
from dohle.storage.files import FileSystem, Lock, WholeDisk, join
from dohle.storage.flush import FlushSchedule
from dohle.storage.log import Log
from dohle.storage.log_context import LogContext
from dohle.storage.open_files import OpenFiles
from dohle.storage.producers.state import ProducerStateConfig
from dohle.storage.segment.index import IndexMemory

logger = logging.getLogger("dohle.storage")


class LogDirectoryInUse(Exception):
    """Another process has the directory open."""


class LogDirectory:
    """A log directory that is locked by this process, and the logs in it."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        directory_id: Uuid,
        *,
        clock: Clock,
        rng: Rng,
        producer_config: ProducerStateConfig,
        index_memory: IndexMemory,
        open_files: OpenFiles,
        holds_records: bool = True,
        on_failed: Callable[[LogDirectory], None] = lambda _: None,
        on_flushed: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, Log] = {}
        #: Partitions whose folder cannot be used, and why: they are offline, the directory is not.
        self.unusable: dict[TopicPartition, str] = {}
        self.had_clean_shutdown = False
        self.disk = DiskStatus(path, lambda: on_failed(self))
        self.folders = PartitionFolders(fs, path, self.disk, rng)
        self.checkpoints = DirectoryCheckpoints(fs, path, self.logs)
        self.space = DiskSpace(fs, path, self.disk, self.logs, holds_records=holds_records)
        self.deletions = DelayedDeletions(fs, clock)
        self.futures = FutureReplicas(fs, self.disk, self.folders, self.checkpoints, self.deletions)
        self._flushes: FlushSchedule[Log] = FlushSchedule()
        self.context = LogContext(
            fs,
            clock,
            rng,
            self.disk,
            self._flushes,
            self.deletions,
            self.checkpoints.write_recovery_points,
            self.checkpoints.write_cleaner_offsets,
            index_memory,
            open_files,
            producer_config,
            on_flushed,
        )
        self._fs = fs
        self._clock = clock
        self._lock: Lock | None = None
        # Taken before anything is written: it tells of what failed since.
        self._whole_disk: WholeDisk | None = None

    # Recurring work. All times are those of the monotonic clock.

    @property
    def next_due_ms(self) -> int | None:
        """When the next removal or flush is due."""
        due = (self.deletions.next_due_ms, self._flushes.next_due_ms)
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def take_due_flushes(self, now_ms: int) -> list[PendingFlush]:
        """Prepare the flushes that are due, each log's once until it is complete."""
        return take_due_flushes(self._flushes, now_ms)

    # Opening

    def lock(self) -> None:
        """Keep other processes out."""
        try:
            self._lock = self._fs.lock(join(self.path, ".lock"))
        except BlockingIOError:
            raise LogDirectoryInUse(
                f"{self.path} is in use by another process: stop that one, or choose another"
                " directory"
            ) from None
        self._whole_disk = self._fs.whole_disk(self.path)

    def load(self, config_for: Callable[[TopicPartition], LogConfig]) -> PlainSteps[None]:
        """Open every partition in the directory, one in each step."""
        self.had_clean_shutdown = has_clean_shutdown(self._fs, self.path)
        # Removed before the first log is opened: a crash while loading is an unclean stop. This
        # also syncs the names of the logs' folders, which a killed process may have left unsynced:
        # a flush does that only for folders that its own process has created.
        remove_clean_shutdown(self._fs, self.path)
        known = self.checkpoints.read()
        names = self.folders.names()
        found = [partition for name in names if (partition := self._live_partition(name))]
        progress = LoadProgress(self._clock, self.path, len(found), self.had_clean_shutdown)
        promoted = self.futures.promoted
        for number, partition in enumerate(found):
            progress.tell(number)
            try:
                topic_id = read_partition_metadata(self._fs, self.folders.live_path(partition))
            except CorruptPartitionMetadata as error:
                self._set_unusable(partition, str(error), known)
                continue
            is_promoted = partition in promoted
            options = LoadOptions(
                log_start_offset=known.log_starts.get(partition, 0),
                recovery_point=0 if is_promoted else known.recovery_points.get(partition, 0),
                recovery_point_known=known.has_recovery_points,
                was_cleaned=known.may_be_cleaned(partition),
                gaps_are_losses=known.shows_losses(partition) and not is_promoted,
                # A future replica was not closed, even if the broker stopped cleanly.
                had_clean_shutdown=self.had_clean_shutdown and not is_promoted,
            )
            log = self._load_log(partition, topic_id, config_for(partition), options)
            if not (options.gaps_are_losses or options.had_clean_shutdown):
                self.checkpoints.gaps_may_be_intended(log)
            log.update_high_watermark(known.high_watermarks.get(partition, 0))
            log.cleaner_offset = known.cleaner_offset(log)
            yield
        progress.done()
        self.checkpoints.replace_stale(known)

    def _set_unusable(self, partition: TopicPartition, reason: str, known: KnownOffsets) -> None:
        """Leave a folder as it is: nobody knows to which topic it belongs."""
        self.unusable[partition] = reason
        self.checkpoints.keep(partition, known)
        logger.error(
            "%s is offline: %s. Put the topic's id into the file (that of another partition of the"
            " topic, if there is one), and restart the broker.",
            partition,
            reason,
        )

    def set_unusable_aside(self, partition: TopicPartition) -> None:
        """Make room for a new partition of the same name; the folder is kept as ``-stray``."""
        self.folders.mark_stray(partition, partition_dir_name(partition))
        del self.unusable[partition]
        with self.disk.guarding("writing checkpoints"):
            self.checkpoints.forget_kept(partition)
            self.checkpoints.write_all()

    def _live_partition(self, name: str) -> TopicPartition | None:
        if name == REMOTE_INDEX_CACHE:
            return None
        try:
            found = parse_partition_dir(name)
        except NotAPartitionDir as error:
            logger.warning("%s: ignoring a folder: %s", self.path, error)
            return None
        path = self.folders.path(name)
        match found.kind:
            case PartitionDirKind.DELETE:
                self.deletions.add([path], 0)
            case PartitionDirKind.STRAY | PartitionDirKind.FUTURE:
                if self.futures.paths.get(found.topic_partition) != path:
                    logger.warning(
                        "%s: ignoring %s, which is not in use: remove it if its records are not"
                        " needed",
                        self.path,
                        name,
                    )
            case PartitionDirKind.LIVE:
                # The metadata log belongs to the quorum: it is not one of the broker's partitions.
                if found.topic_partition.topic != CLUSTER_METADATA_TOPIC:
                    return found.topic_partition
        return None

    def _load_log(
        self,
        partition: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        options: LoadOptions,
    ) -> Log:
        folder = self.folders.live_path(partition)
        log = load_log(self.context, folder, partition, config, options)
        log.topic_id = topic_id
        self.logs[partition] = log
        return log

    def open_internal(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig) -> Log:
        """Open, or create, a log that is not one of the broker's partitions: the metadata log.

        It is always checked from its start, as in Kafka: it is small, and everything depends on it.
        """
        with self.disk.guarding(f"opening {partition}"):
            folder = self.folders.live_path(partition)
            self._fs.make_dirs(folder)
            # Even if it existed: the process that created it may have been killed before its sync.
            self._fs.sync_dir(self.path)
            if read_partition_metadata(self._fs, folder) is None:
                write_partition_metadata(self._fs, folder, topic_id)
            log = load_log(self.context, folder, partition, config, LoadOptions())
            log.topic_id = topic_id
            return log

    # Creating and deleting logs

    def create_log(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig) -> Log:
        """Create a partition's folder.

        Nothing is synced: thousands may be created at once, and an empty log has nothing to lose.
        The first flush of its records syncs the folder and its ``partition.metadata``.
        """
        with self.disk.guarding(f"creating {partition}"):
            self.futures.forget_departed(partition)
            folder = self.folders.live_path(partition)
            self._fs.make_dirs(folder)
            write_partition_metadata(self._fs, folder, topic_id, sync=False)
            log = self._load_log(partition, topic_id, config, LoadOptions(had_clean_shutdown=True))
            log.files.is_new = True
            return log

    def assign_topic_id(self, log: Log, topic_id: Uuid) -> None:
        """Write the ``partition.metadata`` that is missing after a crash, or from an old broker."""
        with self.disk.guarding(f"writing the topic id of {log.partition}"):
            write_partition_metadata(self._fs, log.directory, topic_id)
            log.topic_id = topic_id

    def delete_logs(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Delete logs: their folders are renamed to ``-delete`` now and removed after the delay.

        Many at once take one sync of the names and one of each checkpoint. They are gone for
        everybody with the first step, and their folders are renamed one in each.
        """
        logs = [self.logs[partition] for partition in partitions]
        # Even if the disk fails they are gone, and must not get in the way of a new topic.
        for log in logs:
            self.forget(log)
        with self.disk.guarding(f"deleting {len(logs)} partitions"):
            for log in logs:
                target = self.folders.new_delete_path(log.partition)
                self._rename(log, target)
                self.deletions.add([target], log.config.file_delete_delay_ms)
                yield None
            yield from blocking(lambda: self._fs.sync_dir(self.path))
            # A new partition of the same name must not inherit these.
            yield from self.checkpoints.write_all_in_steps()

    def mark_strays(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Close logs that are no longer assigned here; their folders are kept as ``-stray``.

        Many at once take one sync of the names and one of each checkpoint.
        """
        with self.disk.guarding(f"renaming {len(partitions)} strays"):
            for partition in partitions:
                log = self.logs[partition]
                yield None
                job = log.prepare_close()
                if job is not None:
                    yield from blocking(job.run)
                    log.complete_flush(job)
                log.files.close()
                self.forget(log)
                self._rename(log, self.folders.new_stray_path(partition))
            yield from blocking(lambda: self._fs.sync_dir(self.path))
            yield from self.checkpoints.write_all_in_steps()

    def _rename(self, log: Log, target: str) -> None:
        self._fs.rename(log.directory, target)
        log.files.moved_to(target)
        log.files.discard()

    def forget(self, log: Log) -> None:
        """Remove a log from the list of those in this directory."""
        del self.logs[log.partition]
        self._flushes.forget(log)

    # Closing

    def prepare_close(self) -> PlainSteps[PendingClose]:
        """Write what a clean stop leaves in each log; return the flushes that must come first."""
        closing: list[PendingFlush] = []
        for log in tuple(self.logs.values()):
            yield
            try:
                job = log.prepare_close()
            except KafkaError:
                if self.disk.failure is None:
                    continue  # The log alone is offline.
                self._warn_unclean()
                break
            if job is not None:
                if self.path in job.folders:
                    # The directory itself is synced once for all of them.
                    folders = tuple(folder for folder in job.folders if folder != self.path)
                    job = replace(job, folders=folders)
                closing.append(PendingFlush(self._flushes, log, job))
        together = len(closing) > SYNCED_SINGLY_MAX
        return PendingClose(closing, self._whole_disk if together else None)

    def close(self, broker_epoch: int) -> None:
        """Write the checkpoints, and last the mark of a clean stop, when all logs are closed."""
        try:
            if self.disk.failure is None:
                with self.disk.guarding("closing"):
                    self._fs.sync_dir(self.path)
                    self.checkpoints.write_all()
                    # What could not be used was not closed either.
                    if not self.unusable and all(
                        log.disk.lost is None for log in self.logs.values()
                    ):
                        write_clean_shutdown(self._fs, self.path, broker_epoch)
        except KafkaError:
            self._warn_unclean()
            # The mark may have been written although its sync failed.
            with suppress(OSError):
                remove_clean_shutdown(self._fs, self.path)
        finally:
            self.release()

    def _warn_unclean(self) -> None:
        logger.error(
            "log directory %s could not be closed cleanly: the next start checks its logs",
            self.path,
        )

    def release(self) -> None:
        """Close the descriptors and release the lock, without the mark of a clean stop."""
        for log in self.logs.values():
            log.files.discard()
        if self._whole_disk is not None:
            self._whole_disk.close()
            self._whole_disk = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
