"""One entry of ``log.dirs``: its lock, its identity, its checkpoints, and whether it still works.

A directory whose disk fails goes offline as a whole and for good: its logs answer
KAFKA_STORAGE_ERROR, nothing is written to it any more, and no clean stop is claimed for it. The
other directories, and the broker, go on.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition, Uuid
from dohle.core.seams import Clock, Rng
from dohle.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpoint,
    read_offsets,
    write_offsets,
)
from dohle.storage.clean_shutdown import (
    has_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from dohle.storage.config import LogConfig
from dohle.storage.files import FileSystem, Lock, join, make_dirs_durably
from dohle.storage.flush import FlushJob, FlushSchedule
from dohle.storage.index import IndexMemory
from dohle.storage.loader import LoadOptions, load_log
from dohle.storage.log import Log
from dohle.storage.log_context import LogContext
from dohle.storage.partition_dirs import (
    NotAPartitionDir,
    PartitionDirKind,
    delete_dir_name,
    parse_partition_dir,
    partition_dir_name,
    read_partition_metadata,
    stray_dir_name,
    write_partition_metadata,
)
from dohle.storage.producer_state import ProducerStateConfig

logger = logging.getLogger("dohle.storage")

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


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
        on_failed: Callable[[LogDirectory], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, Log] = {}
        #: Why the directory is offline. The text alone: an exception would keep the buffers of the
        #: append that failed.
        self.failure: str | None = None
        self.had_clean_shutdown = False
        self._context = LogContext(fs, clock, rng, self, index_memory, producer_config)
        self._fs = fs
        self._on_failed = on_failed
        self._clock = clock
        self._rng = rng
        self._lock: Lock | None = None
        self._flushes: FlushSchedule[Log] = FlushSchedule()
        # (due, order, paths): what is to go when its delay has passed.
        self._deletions: list[tuple[int, int, tuple[str, ...]]] = []
        self._deletion_order = 0

    # What a log asks of its directory

    def ensure_online(self) -> None:
        """Raise if the directory is offline."""
        if self.failure is not None:
            raise self._offline_error()

    def _offline_error(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is offline: {self.failure}"
        )

    def failed(self, doing: str, error: OSError) -> KafkaError:
        """Take the directory offline; return what to answer."""
        if self.failure is None:
            self.failure = str(error)
            logger.error("log directory %s goes offline while %s: %s", self.path, doing, error)
            self._on_failed(self)
        return self._offline_error()

    @contextmanager
    def guarding(self, doing: str) -> Iterator[None]:
        """Refuse if the directory is offline; let an ``OSError`` take it offline."""
        self.ensure_online()
        try:
            yield
        except OSError as error:
            raise self.failed(doing, error) from error

    def flush_at(self, log: Log, due_ms: int) -> None:
        """Have the log among ``take_due_flushes`` from a time on."""
        self._flushes.flush_at(log, due_ms)

    def delete_later(self, paths: Iterable[str], delay_ms: int) -> None:
        """Remove files or folders when the delay has passed and ``run_deletions`` is called."""
        due = self._clock.monotonic_ms() + delay_ms
        self._deletion_order += 1
        heapq.heappush(self._deletions, (due, self._deletion_order, tuple(paths)))

    # What recurs. All times are the monotonic clock's.

    @property
    def next_due_ms(self) -> int | None:
        """When the next removal or flush is due."""
        deletion_ms = self._deletions[0][0] if self._deletions else None
        due = [due for due in (deletion_ms, self._flushes.next_due_ms) if due is not None]
        return min(due, default=None)

    def take_due_flushes(self, now_ms: int) -> list[tuple[Log, FlushJob]]:
        """Return the flushes that are due; a log is not among them again before ``flushed``."""
        found: list[tuple[Log, FlushJob]] = []
        for log in self._flushes.take(now_ms):
            job = log.prepare_due_flush()
            if job is None:
                self._flush_again(log)
            else:
                found.append((log, job))
        return found

    def flushed(self, log: Log, job: FlushJob, error: OSError | None) -> None:
        """Take in how a flush has ended."""
        if error is not None:
            self.failed(f"flushing {log.partition}", error)
        else:
            log.complete_flush(job)
        self._flush_again(log)

    def _flush_again(self, log: Log) -> None:
        if self._flushes.landed(log) and (due_ms := log.flush_due_ms) is not None:
            self._flushes.flush_at(log, due_ms)

    def run_deletions(self, now_ms: int) -> None:
        """Remove what is due."""
        while self._deletions and self._deletions[0][0] <= now_ms:
            for path in heapq.heappop(self._deletions)[2]:
                self._remove(path)

    def _remove(self, path: str) -> None:
        try:
            if path.endswith(PartitionDirKind.DELETE.value):
                self._fs.remove_tree(path)
            else:
                self._fs.remove(path)
            logger.debug("deleted %s", path)
        except FileNotFoundError:
            logger.debug("%s was gone already", path)

    # Checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Write below which offset each log is on the disk."""
        self._checkpoint(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def checkpoint_high_watermarks(self) -> None:
        """Write each log's high watermark."""
        self._checkpoint(HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark)

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log starts that the segments' names do not tell."""
        self._checkpoint(
            LOG_START_OFFSET_CHECKPOINT,
            lambda log: (
                log.log_start_offset
                if log.log_start_offset > log.segments.first.base_offset
                else None
            ),
        )

    def _checkpoint(self, name: str, value: Callable[[Log], int | None]) -> None:
        offsets = {
            partition: offset
            for partition, log in self.logs.items()
            if (offset := value(log)) is not None
        }
        write_offsets(self._fs, join(self.path, name), offsets)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        """Return what a file says; None if there is none, or none that can be read."""
        path = join(self.path, name)
        try:
            return read_offsets(self._fs, path) if self._fs.exists(path) else None
        except CorruptCheckpoint as error:
            logger.warning("%s: starting without it: %s", self.path, error)
            return None

    # Life

    def lock(self) -> None:
        """Keep other processes out."""
        try:
            self._lock = self._fs.lock(join(self.path, ".lock"))
        except BlockingIOError:
            raise LogDirectoryInUse(
                f"{self.path} is in use by another process: stop that one, or choose another"
                " directory"
            ) from None

    def load(self, config_for: Callable[[TopicPartition], LogConfig]) -> None:
        """Open every partition in the directory."""
        self.had_clean_shutdown = has_clean_shutdown(self._fs, self.path)
        # Gone before the first log is touched: a crash while loading is an unclean stop.
        remove_clean_shutdown(self._fs, self.path)
        recovery_points = self._read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        log_starts = self._read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = self._read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        may_be_cleaned = self._partitions_once_cleaned()
        names = sorted(entry.name for entry in self._fs.list_dir(self.path) if entry.is_dir)
        found = [partition for name in names if (partition := self._live_partition(name))]
        if found and not self.had_clean_shutdown:
            logger.info("%s was not closed cleanly: its logs are checked", self.path)
        for partition in found:
            log = self._load_log(
                partition,
                config_for(partition),
                LoadOptions(
                    log_start_offset=(log_starts or {}).get(partition, 0),
                    recovery_point=(recovery_points or {}).get(partition, 0),
                    recovery_point_known=recovery_points is not None,
                    was_cleaned=may_be_cleaned(partition),
                    had_clean_shutdown=self.had_clean_shutdown,
                ),
            )
            log.update_high_watermark((high_watermarks or {}).get(partition, 0))
        # The next start must not take a lost log's numbers for those of what comes in its place.
        if recovery_points is None or self._is_stale(
            recovery_points, lambda log: log.recovery_point
        ):
            self.checkpoint_recovery_points()
        if log_starts and self._is_stale(log_starts, lambda log: log.log_start_offset):
            self.checkpoint_log_start_offsets()
        if high_watermarks and self._is_stale(high_watermarks, lambda log: log.high_watermark):
            self.checkpoint_high_watermarks()

    def _partitions_once_cleaned(self) -> Callable[[TopicPartition], bool]:
        path = join(self.path, CLEANER_OFFSET_CHECKPOINT)
        found = self._read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        if found is None and self._fs.exists(path):
            return lambda _: True
        return lambda partition: found is not None and partition in found

    def _is_stale(self, found: dict[TopicPartition, int], value: Callable[[Log], int]) -> bool:
        """Tell whether a file says more than there is."""
        return any(
            partition not in self.logs or offset > value(self.logs[partition])
            for partition, offset in found.items()
        )

    def _live_partition(self, name: str) -> TopicPartition | None:
        try:
            found = parse_partition_dir(name)
        except NotAPartitionDir:
            logger.warning("%s: leaving %s alone, it is no partition", self.path, name)
            return None
        match found.kind:
            case PartitionDirKind.DELETE:
                self.delete_later([join(self.path, name)], 0)
            case PartitionDirKind.STRAY | PartitionDirKind.FUTURE:
                logger.warning("%s: leaving %s alone", self.path, name)
            case PartitionDirKind.LIVE:
                # The metadata log is its quorum's, not one of the broker's partitions.
                if found.topic_partition.topic != CLUSTER_METADATA_TOPIC:
                    return found.topic_partition
        return None

    def _load_log(self, partition: TopicPartition, config: LogConfig, options: LoadOptions) -> Log:
        directory = join(self.path, partition_dir_name(partition))
        log = self._open_log(directory, partition, config, options)
        log.topic_id = read_partition_metadata(self._fs, directory)
        self.logs[partition] = log
        return log

    def _open_log(
        self, directory: str, partition: TopicPartition, config: LogConfig, options: LoadOptions
    ) -> Log:
        return load_log(self._context, directory, partition, config, options)

    def create_log(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig) -> Log:
        """Make a partition's folder.

        Nothing is synced: thousands may be made at once, and an empty log has nothing to lose. The
        first flush of its records brings the folder and whose it is to the disk with them.
        """
        with self.guarding(f"creating {partition}"):
            directory = join(self.path, partition_dir_name(partition))
            self._fs.make_dirs(directory)
            write_partition_metadata(self._fs, directory, topic_id, sync=False)
            log = self._load_log(partition, config, LoadOptions(had_clean_shutdown=True))
            log.is_new = True
            return log

    def assign_topic_id(self, log: Log, topic_id: Uuid) -> None:
        """Write down whose log it is, where a crash, or an old broker, has left that open."""
        with self.guarding(f"naming the topic of {log.partition}"):
            write_partition_metadata(self._fs, log.directory, topic_id)
            log.topic_id = topic_id

    def open_internal(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig) -> Log:
        """Open, or make, a log that is not one of the broker's partitions: the metadata log.

        It is always checked from its start, as Kafka does; it is small, and all depends on it.
        """
        with self.guarding(f"opening {partition}"):
            directory = join(self.path, partition_dir_name(partition))
            make_dirs_durably(self._fs, directory)
            if read_partition_metadata(self._fs, directory) is None:
                write_partition_metadata(self._fs, directory, topic_id)
            log = self._open_log(directory, partition, config, LoadOptions())
            log.topic_id = topic_id
            return log

    def delete_logs(self, partitions: Sequence[TopicPartition]) -> None:
        """Take logs away: their folders get ``-delete`` now and go after the delay.

        Many at once cost one sync of the names and one of each checkpoint.
        """
        logs = [self.logs[partition] for partition in partitions]
        # Whatever the disk does: they are gone, and must not stand in the way of a new topic.
        for log in logs:
            self._forget(log)
        with self.guarding(f"deleting {len(logs)} partitions"):
            for log in logs:
                target = self._rename(log, delete_dir_name(log.partition, self._unique()))
                self.delete_later([target], log.config.file_delete_delay_ms)
            self._fs.sync_dir(self.path)
            # A partition of the same name may come again, and must not inherit these.
            self._checkpoint_all()

    def mark_stray(self, partition: TopicPartition) -> None:
        """Close a log that is not ours any more; its folder gets ``-stray`` and is kept."""
        with self.guarding(f"putting {partition} aside"):
            log = self.logs[partition]
            log.close()
            self._forget(log)
            self._rename(log, stray_dir_name(partition, self._unique()))
            self._fs.sync_dir(self.path)
            self._checkpoint_all()

    def _unique(self) -> Uuid:
        return Uuid(self._rng.randbytes(16))

    def _forget(self, log: Log) -> None:
        del self.logs[log.partition]
        self._flushes.forget(log)

    def _rename(self, log: Log, name: str) -> str:
        """Rename a log's folder; return its new path."""
        target = join(self.path, name)
        self._fs.rename(log.directory, target)
        log.moved_to(target)
        log.discard()
        return target

    def _checkpoint_all(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()

    def close(self, broker_epoch: int) -> None:
        """Close all logs, write the checkpoints, and last the mark of a clean stop."""
        try:
            if self.failure is None:
                with self.guarding("closing"):
                    for log in self.logs.values():
                        log.close()
                    self._checkpoint_all()
                    write_clean_shutdown(self._fs, self.path, broker_epoch)
        except KafkaError:
            logger.error("%s could not be closed cleanly", self.path)
        finally:
            self.release()

    def release(self) -> None:
        """Give descriptors and lock back without claiming a clean stop."""
        for log in self.logs.values():
            log.discard()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
