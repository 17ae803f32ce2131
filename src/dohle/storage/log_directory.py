"""One entry of ``log.dirs``: its lock, its identity, its checkpoints, and whether it still works.

A directory whose disk fails goes offline as a whole and for good: its logs answer
KAFKA_STORAGE_ERROR, nothing is written to it any more, and no clean stop is claimed for it. The
other directories, and the broker, go on.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition, Uuid
from dohle.core.seams import Clock, Rng
from dohle.storage.checkpoints import (
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
from dohle.storage.index import IndexMemory
from dohle.storage.loader import LoadOptions, load_log
from dohle.storage.log import Log
from dohle.storage.partition_dirs import (
    NotAPartitionDir,
    PartitionDirKind,
    delete_dir_name,
    parse_partition_dir,
    partition_dir_name,
    read_partition_metadata,
    write_partition_metadata,
)
from dohle.storage.producer_state import ProducerStateConfig
from dohle.storage.segment import LogSegment

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
    ) -> None:
        self.path = path
        self.index_memory = index_memory
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, Log] = {}
        self.failure: KafkaError | None = None
        self.had_clean_shutdown = False
        self._fs = fs
        self._clock = clock
        self._rng = rng
        self._producer_config = producer_config
        self._lock: Lock | None = None
        # (due, order, paths, segments to close): what is to go when its delay has passed.
        self._deletions: list[tuple[int, int, tuple[str, ...], tuple[LogSegment, ...]]] = []
        self._deletion_order = 0

    # What a log asks of its directory

    def ensure_online(self) -> None:
        """Raise if the directory is offline."""
        if self.failure is not None:
            raise self.failure

    def failed(self, doing: str, error: OSError) -> KafkaError:
        """Take the directory offline; return what to answer."""
        if self.failure is None:
            self.failure = KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is offline: {error}"
            )
            logger.error("log directory %s goes offline while %s: %s", self.path, doing, error)
        return self.failure

    @contextmanager
    def guarding(self, doing: str) -> Iterator[None]:
        """Refuse if the directory is offline; let an ``OSError`` take it offline."""
        self.ensure_online()
        try:
            yield
        except OSError as error:
            raise self.failed(doing, error) from error

    def delete_later(
        self, paths: Iterable[str], delay_ms: int, then_close: Iterable[LogSegment] = ()
    ) -> None:
        """Remove files or folders when the delay has passed and ``run_deletions`` is called.

        Readers of old slices go on until then; only with ``then_close`` does the disk get its room.
        """
        due = self._clock.now_ms() + delay_ms
        self._deletion_order += 1
        entry = (due, self._deletion_order, tuple(paths), tuple(then_close))
        heapq.heappush(self._deletions, entry)

    @property
    def next_deletion_ms(self) -> int | None:
        """When the next removal is due."""
        return self._deletions[0][0] if self._deletions else None

    def run_deletions(self, now_ms: int) -> None:
        """Remove what is due."""
        while self._deletions and self._deletions[0][0] <= now_ms:
            _, _, paths, segments = heapq.heappop(self._deletions)
            for segment in segments:
                segment.close()
            for path in paths:
                self._remove(path)

    def _remove(self, path: str) -> None:
        try:
            if path.endswith(PartitionDirKind.DELETE.value):
                self._fs.remove_tree(path)
            else:
                self._fs.remove(path)
            logger.info("deleted %s", path)
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

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._fs, join(self.path, name))
        except CorruptCheckpoint as error:
            logger.warning("%s: starting without it: %s", self.path, error)
            return {}

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
        if not self.had_clean_shutdown:
            logger.info("%s was not closed cleanly: its logs are checked", self.path)
        recovery_points = self._read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        log_starts = self._read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
        high_watermarks = self._read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        for name in sorted(entry.name for entry in self._fs.list_dir(self.path) if entry.is_dir):
            partition = self._live_partition(name)
            if partition is None:
                continue
            log = self._load_log(
                partition,
                config_for(partition),
                LoadOptions(
                    log_start_offset=log_starts.get(partition, 0),
                    recovery_point=recovery_points.get(partition, 0),
                    had_clean_shutdown=self.had_clean_shutdown,
                ),
            )
            log.update_high_watermark(high_watermarks.get(partition, 0))

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
        return load_log(
            self._fs,
            directory,
            partition,
            config,
            owner=self,
            clock=self._clock,
            rng=self._rng,
            producer_config=self._producer_config,
            options=options,
        )

    def create_log(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig) -> Log:
        """Make a partition's folder; whose it is reaches the disk before any record can."""
        self.ensure_online()
        with self.guarding(f"creating {partition}"):
            directory = join(self.path, partition_dir_name(partition))
            make_dirs_durably(self._fs, directory)
            write_partition_metadata(self._fs, directory, topic_id)
            return self._load_log(partition, config, LoadOptions(had_clean_shutdown=True))

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

    def delete_log(self, partition: TopicPartition) -> None:
        """Take a log away: its folder gets ``-delete`` now and goes after the delay."""
        self.ensure_online()
        with self.guarding(f"deleting {partition}"):
            log = self.logs.pop(partition)
            unique = Uuid(self._rng.randbytes(16))
            target = join(self.path, delete_dir_name(partition, unique))
            self._fs.rename(log.directory, target)
            self._fs.sync_dir(self.path)
            log.moved_to(target)
            log.close_files()
            self.delete_later([target], log.config.file_delete_delay_ms)
            # A partition of the same name may come again, and must not inherit these.
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
                    self.checkpoint_recovery_points()
                    self.checkpoint_log_start_offsets()
                    self.checkpoint_high_watermarks()
                    write_clean_shutdown(self._fs, self.path, broker_epoch)
        except KafkaError:
            logger.error("%s could not be closed cleanly", self.path)
        finally:
            self.release()

    def release(self) -> None:
        """Give descriptors and lock back without claiming a clean stop."""
        for log in self.logs.values():
            log.close_files()
        for _, _, _, segments in self._deletions:
            for segment in segments:
                segment.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
