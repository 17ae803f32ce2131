"""One entry of ``log.dirs``: its lock, its identity, its checkpoints, and whether it still works.

A directory whose disk fails goes offline as a whole and for good: its logs answer
KAFKA_STORAGE_ERROR, nothing is written to it any more, and no clean stop is claimed for it. The
other directories, and the broker, go on.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition, Uuid
from dohle.core.seams import Clock, Rng
from dohle.storage.config import LogConfig
from dohle.storage.directory.clean_shutdown import (
    has_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from dohle.storage.directory.directory_checkpoints import DirectoryCheckpoints
from dohle.storage.directory.loader import LoadOptions, load_log
from dohle.storage.directory.partition_dirs import (
    NotAPartitionDir,
    PartitionDirKind,
    delete_dir_name,
    future_dir_name,
    parse_partition_dir,
    partition_dir_name,
    read_partition_metadata,
    stray_dir_name,
    write_partition_metadata,
)
from dohle.storage.files import FileSystem, Lock, join, make_dirs_durably
from dohle.storage.flush import FlushJob, FlushSchedule
from dohle.storage.log import Log
from dohle.storage.log_context import LogContext
from dohle.storage.log_files import LogFiles
from dohle.storage.producers.state import ProducerStateConfig
from dohle.storage.segment.index import IndexMemory

logger = logging.getLogger("dohle.storage")

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class ClosingLog:
    """A log whose files are as they are to stay, but for the syncing."""

    directory: LogDirectory
    log: LogFiles
    job: FlushJob

    def run(self) -> OSError | None:
        """Sync, in any thread; return what went wrong."""
        try:
            self.job.run()
        except OSError as error:
            return error
        return None

    def complete(self, error: OSError | None) -> None:
        """Count the log as closed, or take its directory offline."""
        self.directory.flushed(self.log, self.job, error)


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
        #: The folders of replicas that are to come here, those of an earlier life included.
        self.futures: dict[TopicPartition, str] = {}
        #: The future replicas that this start has given the partition's name.
        self.promoted: set[TopicPartition] = set()
        # Moved elsewhere, and the checkpoints may still tell of them.
        self._departed: set[TopicPartition] = set()
        #: Why the directory is offline. The text alone: an exception would keep the buffers of the
        #: append that failed.
        self.failure: str | None = None
        self.had_clean_shutdown = False
        self.context = LogContext(fs, clock, rng, self, index_memory, producer_config)
        self._checkpoints = DirectoryCheckpoints(fs, path, self.logs)
        self._fs = fs
        self._on_failed = on_failed
        self._clock = clock
        self._rng = rng
        self._lock: Lock | None = None
        self._flushes: FlushSchedule[LogFiles] = FlushSchedule()
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

    def flush_at(self, log: LogFiles, due_ms: int) -> None:
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

    def take_due_flushes(self, now_ms: int) -> list[tuple[LogFiles, FlushJob]]:
        """Return the flushes that are due; a log is not among them again before ``flushed``."""
        found: list[tuple[LogFiles, FlushJob]] = []
        for log in self._flushes.take(now_ms):
            job = log.prepare_due_flush()
            if job is None:
                self._flush_again(log)
            else:
                found.append((log, job))
        return found

    def flushed(self, log: LogFiles, job: FlushJob, error: OSError | None) -> None:
        """Take in how a flush has ended."""
        if error is not None:
            self.failed(f"flushing {log.partition}", error)
        else:
            log.complete_flush(job)
        self._flush_again(log)

    def _flush_again(self, log: LogFiles) -> None:
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
        self._checkpoints.write_recovery_points()

    def checkpoint_high_watermarks(self) -> None:
        """Write each log's high watermark."""
        self._checkpoints.write_high_watermarks()

    def checkpoint_log_start_offsets(self) -> None:
        """Write the log starts that the segments' names do not tell."""
        self._checkpoints.write_log_start_offsets()

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
        known = self._checkpoints.read()
        found = [partition for name in self.folders() if (partition := self._live_partition(name))]
        if found and not self.had_clean_shutdown:
            logger.info("%s was not closed cleanly: its logs are checked", self.path)
        for partition in found:
            log = self._load_log(
                partition,
                config_for(partition),
                LoadOptions(
                    log_start_offset=known.log_starts.get(partition, 0),
                    recovery_point=known.recovery_points.get(partition, 0),
                    recovery_point_known=known.has_recovery_points,
                    was_cleaned=known.may_be_cleaned(partition),
                    # What was a future replica until now has not been closed, whoever stopped.
                    had_clean_shutdown=self.had_clean_shutdown and partition not in self.promoted,
                ),
            )
            log.update_high_watermark(known.high_watermarks.get(partition, 0))
        self._checkpoints.replace_stale(known)

    def folders(self) -> list[str]:
        """Return the names of all folders."""
        with self.guarding("listing its folders"):
            return sorted(entry.name for entry in self._fs.list_dir(self.path) if entry.is_dir)

    def topic_id_of(self, name: str) -> Uuid | None:
        """Return whose log is in a folder, if that is written down."""
        with self.guarding(f"looking into {name}"):
            return read_partition_metadata(self._fs, join(self.path, name))

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
                if self.futures.get(found.topic_partition) != join(self.path, name):
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
        return load_log(self.context, directory, partition, config, options)

    def create_log(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig) -> Log:
        """Make a partition's folder.

        Nothing is synced: thousands may be made at once, and an empty log has nothing to lose. The
        first flush of its records brings the folder and whose it is to the disk with them.
        """
        with self.guarding(f"creating {partition}"):
            self._forget_departed(partition)
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
            self.forget(log)
        with self.guarding(f"deleting {len(logs)} partitions"):
            for log in logs:
                target = self._rename(log, delete_dir_name(log.partition, self._unique()))
                self.delete_later([target], log.config.file_delete_delay_ms)
            self._fs.sync_dir(self.path)
            # A partition of the same name may come again, and must not inherit these.
            self._checkpoints.write_all()

    def mark_stray(self, partition: TopicPartition) -> None:
        """Close a log that is not ours any more; its folder gets ``-stray`` and is kept."""
        with self.guarding(f"putting {partition} aside"):
            log = self.logs[partition]
            log.close()
            self.forget(log)
            self._rename(log, stray_dir_name(partition, self._unique()))
            self._fs.sync_dir(self.path)
            self._checkpoints.write_all()

    # Replicas that move between directories: see ``replica_move``

    def begin_future(self, partition: TopicPartition, topic_id: Uuid) -> str:
        """Make the folder of a replica that is to come here; one of an earlier attempt goes."""
        self.drop_future(partition)
        with self.guarding(f"preparing for {partition}"):
            self._forget_departed(partition)
            folder = join(self.path, future_dir_name(partition, self._unique()))
            self._fs.make_dirs(folder)
            self.futures[partition] = folder
            write_partition_metadata(self._fs, folder, topic_id, sync=False)
            return folder

    def drop_future(self, partition: TopicPartition) -> None:
        """Take a replica away that will not come."""
        folder = self.futures.pop(partition, None)
        if folder is not None:
            self._put_away(partition, folder, 0)

    def take_over(self, log: Log, source: LogDirectory) -> str:
        """Give a future replica the partition's name, and return its folder.

        What is kept beside the logs comes first: a start that finds the log here finds that too.
        """
        partition = log.partition
        if log.log_start_offset > log.segments.first.base_offset:
            self._checkpoints.write_log_start_offsets(log)
        if source.may_be_cleaned(partition):
            self._checkpoints.note_cleaned(partition)
        folder = join(self.path, partition_dir_name(partition))
        self._fs.rename(self.futures[partition], folder)
        del self.futures[partition]
        return folder

    def promote_future(self, partition: TopicPartition, name: str) -> None:
        """Let a future replica be the log, at start: no other is left."""
        self._rename_folder(name, partition_dir_name(partition))
        self.promoted.add(partition)

    def set_aside(self, partition: TopicPartition, name: str) -> None:
        """Give a folder that is not to be used, but not known to be useless, ``-stray``."""
        self._rename_folder(name, stray_dir_name(partition, self._unique()))

    def _rename_folder(self, name: str, new_name: str) -> None:
        with self.guarding(f"renaming {name}"):
            self._fs.rename(join(self.path, name), join(self.path, new_name))
            self._fs.sync_dir(self.path)

    def may_be_cleaned(self, partition: TopicPartition) -> bool:
        """Tell whether a log may once have been compacted."""
        with self.guarding(f"looking whether {partition} was compacted"):
            return self._checkpoints.may_be_cleaned(partition)

    def put_away(self, log: Log, folder: str) -> None:
        """Take the folder away in which a log was that has moved."""
        self._departed.add(log.partition)
        self._put_away(log.partition, folder, log.config.file_delete_delay_ms)

    def _put_away(self, partition: TopicPartition, folder: str, delay_ms: int) -> None:
        if self.failure is not None:
            return
        target = join(self.path, delete_dir_name(partition, self._unique()))
        try:
            self._fs.rename(folder, target)
        except FileNotFoundError:
            logger.info("%s was gone already", folder)
        except OSError as error:
            self.failed(f"putting {folder} away", error)
        else:
            self.delete_later([target], delay_ms)

    def _forget_departed(self, partition: TopicPartition) -> None:
        # The numbers of a log that was here must not be taken for those of one that comes.
        if partition in self._departed:
            self._checkpoints.write_all()
            self._departed.clear()

    def _unique(self) -> Uuid:
        return Uuid(self._rng.randbytes(16))

    def forget(self, log: Log) -> None:
        """Count a log no more among those that are here."""
        del self.logs[log.partition]
        self._flushes.forget(log)

    def _rename(self, log: Log, name: str) -> str:
        """Rename a log's folder; return its new path."""
        target = join(self.path, name)
        self._fs.rename(log.directory, target)
        log.moved_to(target)
        log.discard()
        return target

    def prepare_close(self) -> list[ClosingLog]:
        """Write what a clean stop leaves in each log; return what has to be synced before it."""
        closing = []
        try:
            for log in self.logs.values():
                if (job := log.prepare_close()) is not None:
                    # The directory itself is synced once for all of them.
                    folders = tuple(folder for folder in job.folders if folder != self.path)
                    closing.append(ClosingLog(self, log, replace(job, folders=folders)))
        except KafkaError:
            logger.error("%s cannot be closed cleanly", self.path)
        return closing

    def close(self, broker_epoch: int) -> None:
        """Write the checkpoints, and last the mark of a clean stop, when all logs are closed."""
        try:
            if self.failure is None:
                with self.guarding("closing"):
                    self._fs.sync_dir(self.path)
                    self._checkpoints.write_all()
                    write_clean_shutdown(self._fs, self.path, broker_epoch)
        except KafkaError:
            logger.error("%s could not be closed cleanly", self.path)
            # The mark may be there and only its sync have failed.
            with suppress(OSError):
                remove_clean_shutdown(self._fs, self.path)
        finally:
            self.release()

    def release(self) -> None:
        """Give descriptors and lock back without claiming a clean stop."""
        for log in self.logs.values():
            log.discard()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
