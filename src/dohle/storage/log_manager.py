"""All logs of a node: opening its directories, placing partitions, and the work that recurs.

Nothing here runs by itself: the node's driver calls ``run_due`` when ``next_due_ms`` has come, and
runs the jobs of ``due_flushes`` where blocking does no harm. Time comes from the clock seam, so a
test walks through weeks of retention without waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition, Uuid
from dohle.core.seams import Clock, Rng
from dohle.core.uuid import random_uuid
from dohle.storage.config import LogConfig, LogManagerConfig
from dohle.storage.files import FileSystem, make_dirs_durably
from dohle.storage.flush import FlushJob
from dohle.storage.index import IndexMemory
from dohle.storage.log import Log
from dohle.storage.log_directory import LogDirectory
from dohle.storage.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    load_ensemble,
    write_meta_properties,
)
from dohle.storage.producer_state import ProducerStateConfig
from dohle.storage.retention import delete_old_segments

logger = logging.getLogger("dohle.storage")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which node of which cluster the directories belong to."""

    cluster_id: str
    node_id: BrokerId


@dataclass(slots=True)
class _Task:
    """Work that recurs in every directory."""

    name: str
    interval_ms: int
    run: Callable[[LogDirectory, int], None]
    due_ms: int


@dataclass(frozen=True, slots=True)
class DueFlush:
    """A flush that is due: ``job.run()`` may block; ``complete`` goes back to the log's owner."""

    directory: LogDirectory
    log: Log
    job: FlushJob

    def run(self) -> None:
        """Do both at once."""
        with self.directory.guarding(f"flushing {self.log.partition}"):
            self.job.run()
        self.log.complete_flush(self.job)


class LogManager:
    """The logs of a node, in one or more directories."""

    def __init__(
        self,
        fs: FileSystem,
        *,
        clock: Clock,
        rng: Rng,
        config: LogManagerConfig | None = None,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._rng = rng
        self._config = config or LogManagerConfig()
        self._producer_config = ProducerStateConfig(
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            transaction_max_timeout_ms=self._config.transaction_max_timeout_ms,
        )
        self._index_memory = IndexMemory()
        self.directories: list[LogDirectory] = []
        self.offline: dict[str, str] = {}
        self._tasks = self._plan_tasks()

    def _plan_tasks(self) -> list[_Task]:
        config = self._config
        first = self._clock.now_ms() + config.log_initial_task_delay_ms

        def task(name: str, interval_ms: int, run: Callable[[LogDirectory, int], None]) -> _Task:
            return _Task(name, interval_ms, run, first)

        return [
            task(
                "high watermark checkpoint",
                config.replica_high_watermark_checkpoint_interval_ms,
                lambda directory, _: directory.checkpoint_high_watermarks(),
            ),
            task(
                "recovery point checkpoint",
                config.log_flush_offset_checkpoint_interval_ms,
                lambda directory, _: directory.checkpoint_recovery_points(),
            ),
            task(
                "log start checkpoint",
                config.log_flush_start_offset_checkpoint_interval_ms,
                lambda directory, _: directory.checkpoint_log_start_offsets(),
            ),
            task("retention", config.log_retention_check_interval_ms, _delete_old_segments),
            task(
                "producer expiry",
                config.producer_id_expiration_check_interval_ms,
                _remove_expired_producers,
            ),
        ]

    # Opening

    def open(
        self,
        paths: Sequence[str],
        identity: Identity,
        config_for: Callable[[TopicPartition], LogConfig] = lambda _: LogConfig(),
    ) -> None:
        """Lock, check, format where empty, and load every directory.

        A directory whose disk fails is left offline. One that is another node's, or in use, is a
        mistake that must not be passed over; so is having no directory left.
        """
        try:
            self._make(paths)
            ensemble = load_ensemble(self._fs, [path for path in paths if path not in self.offline])
            for path, error in ensemble.failed_dirs.items():
                if isinstance(error, InvalidMetaProperties):
                    raise error
                self._set_offline(path, str(error))
            ensemble.verify(identity.cluster_id, identity.node_id)
            for path in paths:
                if path not in self.offline:
                    self._open(path, ensemble.properties.get(path), identity, config_for)
            if not self.online_directories:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"none of the log directories can be used: {self.offline}",
                )
        except BaseException:
            self.release()
            raise

    def _make(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                make_dirs_durably(self._fs, path)
            except OSError as error:
                self._set_offline(path, str(error))

    def _open(
        self,
        path: str,
        found: MetaProperties | None,
        identity: Identity,
        config_for: Callable[[TopicPartition], LogConfig],
    ) -> None:
        directory_id = None if found is None else found.directory_id
        directory = LogDirectory(
            self._fs,
            path,
            directory_id or random_uuid(self._rng),
            clock=self._clock,
            rng=self._rng,
            producer_config=self._producer_config,
            index_memory=self._index_memory,
        )
        try:
            directory.lock()
            # From here on it is ours to release, whatever comes.
            self.directories.append(directory)
            if directory_id is None:
                self._format(directory, identity)
            with directory.guarding("loading"):
                directory.load(config_for)
        except OSError as error:
            self._set_offline(path, str(error))
        except KafkaError as error:
            if directory.failure is None:
                raise
            self._set_offline(path, str(error))
        twice = [p for p in directory.logs if self._count(p) > 1]
        if twice:
            raise InvalidMetaProperties(
                f"{twice[0]} is in {path} and in another log directory: remove the older copy"
            )

    def _format(self, directory: LogDirectory, identity: Identity) -> None:
        write_meta_properties(
            self._fs,
            directory.path,
            MetaProperties(identity.cluster_id, identity.node_id, directory.directory_id),
            self._clock.now_ms(),
        )

    def _count(self, partition: TopicPartition) -> int:
        return sum(partition in directory.logs for directory in self.directories)

    def _set_offline(self, path: str, reason: str) -> None:
        logger.error("log directory %s is offline: %s", path, reason)
        self.offline[path] = reason

    # Logs

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories that work."""
        return [directory for directory in self.directories if directory.failure is None]

    def __iter__(self) -> Iterator[Log]:
        for directory in self.directories:
            yield from directory.logs.values()

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log; it may be in a directory that is offline."""
        for directory in self.directories:
            log = directory.logs.get(partition)
            if log is not None:
                return log
        return None

    def get_or_create(
        self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, *, is_new: bool = False
    ) -> Log:
        """Return a partition's log; a new one goes to the directory with the fewest.

        Unless it is known to be new, it is not made while a directory is offline: it may be there.
        """
        log = self.get(partition)
        if log is not None:
            if log.topic_id is not None and log.topic_id != topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{partition} on disk is of another topic of the same name",
                )
            return log
        online = self.online_directories
        if not online or (not is_new and (self.offline or len(online) < len(self.directories))):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} may be in a directory that is offline"
            )
        return min(online, key=lambda d: len(d.logs)).create_log(partition, topic_id, config)

    def delete(self, partition: TopicPartition) -> None:
        """Take a partition's log away."""
        for directory in self.directories:
            if partition in directory.logs:
                directory.delete_log(partition)

    # Work that recurs

    def next_due_ms(self) -> int:
        """Return when ``run_due`` is next worth calling."""
        due = [task.due_ms for task in self._tasks]
        due += [
            d.next_deletion_ms for d in self.online_directories if d.next_deletion_ms is not None
        ]
        return min(due)

    def run_due(self, now_ms: int) -> None:
        """Do what has come due; a directory that fails at it goes offline, the others go on."""
        due = [task for task in self._tasks if task.due_ms <= now_ms]
        for task in due:
            task.due_ms = now_ms + task.interval_ms
        for directory in self.online_directories:
            try:
                with directory.guarding("deleting files"):
                    directory.run_deletions(now_ms)
                for task in due:
                    with directory.guarding(task.name):
                        task.run(directory, now_ms)
            except KafkaError:
                if directory.failure is None:
                    raise

    def due_flushes(self, now_ms: int) -> list[DueFlush]:
        """Return the flushes that a roll or ``flush.ms`` asks for."""
        found = []
        for directory in self.online_directories:
            for log in directory.logs.values():
                up_to = None
                if now_ms - log.last_flush_ms >= log.config.flush_ms:
                    up_to = log.log_end_offset
                elif log.flush_wanted_up_to > log.recovery_point:
                    up_to = log.flush_wanted_up_to
                job = None if up_to is None else log.prepare_flush(up_to)
                if job is not None:
                    found.append(DueFlush(directory, log, job))
        return found

    def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly. What is offline stays as it is, for recovery."""
        for directory in self.directories:
            directory.close(broker_epoch)
        self.directories = []

    def release(self) -> None:
        """Let go without claiming a clean stop, as after a failed start."""
        for directory in self.directories:
            directory.release()
        self.directories = []


def _delete_old_segments(directory: LogDirectory, now_ms: int) -> None:
    for log in directory.logs.values():
        delete_old_segments(log, now_ms)


def _remove_expired_producers(directory: LogDirectory, now_ms: int) -> None:
    for log in directory.logs.values():
        log.producer_state.remove_expired_producers(now_ms)
