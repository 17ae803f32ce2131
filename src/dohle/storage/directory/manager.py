"""All logs of a node: opening its directories, placing partitions, and the work that recurs.

Nothing here runs by itself. At ``next_due_ms`` the node's driver calls ``run_due``. For each of
``due_flushes`` it calls ``run`` in a thread that may block, then ``complete`` on its own thread.
Intervals are measured by the monotonic clock, ages of records by the wall clock; both come through
the seam, so a test goes through weeks of retention without waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition, Uuid
from dohle.core.seams import Clock, Rng
from dohle.core.steps import PlainSteps, finish, in_one_step
from dohle.core.uuid import random_uuid
from dohle.storage.config import LogConfig, LogManagerConfig
from dohle.storage.directory.data_folders import data_folders, describe, log_bytes
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.meta_properties import (
    HOW_TO_RESTORE,
    METADATA_FOLDER,
    InvalidMetaProperties,
    MetaProperties,
    load_ensemble,
    write_meta_properties,
)
from dohle.storage.directory.pending_flush import PendingFlush
from dohle.storage.directory.retention import delete_old_segments_in_steps
from dohle.storage.files import FileSystem, join, make_dirs_durably
from dohle.storage.log import Log
from dohle.storage.moves.places import AssignmentOf, Places, settle_places
from dohle.storage.open_files import OpenFiles
from dohle.storage.producers.state import ProducerStateConfig
from dohle.storage.segment.index import IndexMemory

logger = logging.getLogger("dohle.storage")

#: How often the room on the disks is looked at.
_DISK_SPACE_MS = 1_000

#: How many requests for the directories of logs that do not exist yet are remembered.
_PREFERRED_MAX = 10_000


#: Calls all given functions and returns their results in the same order.
RunAll = Callable[[Sequence[Callable[[], OSError | None]]], Sequence[OSError | None]]


def one_by_one(works: Sequence[Callable[[], OSError | None]]) -> list[OSError | None]:
    """Call one after the other, in this thread."""
    return [work() for work in works]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which node of which cluster the directories belong to."""

    cluster_id: str
    node_id: BrokerId


@dataclass(slots=True)
class _Task:
    """Recurring work in every directory."""

    name: str
    interval_ms: int
    run: Callable[[LogDirectory], PlainSteps[None]]
    due_ms: int


class LogManager:
    """The logs of a node, in one or more directories."""

    def __init__(
        self,
        fs: FileSystem,
        *,
        clock: Clock,
        rng: Rng,
        config: LogManagerConfig | None = None,
        index_memory: IndexMemory | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._rng = rng
        self._config = config or LogManagerConfig()
        self._producer_config = ProducerStateConfig(
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
        )
        self._index_memory = IndexMemory() if index_memory is None else index_memory
        self._open_files = OpenFiles() if open_files is None else open_files
        fs.give_back_descriptor = self._open_files.give_back
        #: Called with a directory that has just gone offline.
        self.on_directory_failed: Callable[[LogDirectory], None] = lambda _: None
        #: Told how many seconds a flush took that an append has waited for.
        self.on_flushed: Callable[[float], None] = lambda _: None
        self.directories: list[LogDirectory] = []
        #: Those of them that have no id yet: ``load`` gives them one.
        self.unformatted: list[LogDirectory] = []
        #: Those of them that had no ``meta.properties`` at all.
        self.new_directories: list[LogDirectory] = []
        #: The one of the metadata log, if its path was given to ``attach``.
        self.metadata_directory: LogDirectory | None = None
        # That one, if it holds nothing else.
        self._beside: list[LogDirectory] = []
        self._gone_offline: dict[str, str] = {}
        self.places = Places()
        # In which directories an operator wants logs that do not exist yet.
        self._preferred: dict[TopicPartition, str] = {}
        self._tasks = self._plan_tasks()
        # Nobody is woken for that: appends look by themselves.
        self._space_task = _Task(
            "looking for free space",
            _DISK_SPACE_MS,
            lambda directory: in_one_step(directory.space.check),
            clock.monotonic_ms() + _DISK_SPACE_MS,
        )

    def _plan_tasks(self) -> list[_Task]:
        config = self._config
        first = self._clock.monotonic_ms() + config.log_initial_task_delay_ms

        def task(
            name: str, interval_ms: int, run: Callable[[LogDirectory], PlainSteps[None]]
        ) -> _Task:
            return _Task(name, interval_ms, run, first)

        return [
            task(
                "high watermark checkpoint",
                config.replica_high_watermark_checkpoint_interval_ms,
                lambda directory: in_one_step(directory.checkpoints.write_high_watermarks),
            ),
            task(
                "recovery point checkpoint",
                config.log_flush_offset_checkpoint_interval_ms,
                lambda directory: in_one_step(directory.checkpoints.write_recovery_points),
            ),
            task(
                "log start checkpoint",
                config.log_flush_start_offset_checkpoint_interval_ms,
                lambda directory: in_one_step(directory.checkpoints.write_log_start_offsets),
            ),
            task("retention", config.log_retention_check_interval_ms, self._delete_old_segments),
            task(
                "producer expiry",
                config.producer_id_expiration_check_interval_ms,
                self._remove_expired_producers,
            ),
        ]

    # Opening

    def open(
        self,
        paths: Sequence[str],
        identity: Identity,
        config_for: Callable[[TopicPartition], LogConfig],
    ) -> None:
        """Attach the directories and load what is in them."""
        self.attach(paths, identity)
        self.load(config_for)

    def attach(
        self, paths: Sequence[str], identity: Identity, metadata_path: str | None = None
    ) -> None:
        """Lock and check the directories; what is in them stays unchanged.

        A directory whose disk fails is left offline. It is an error if one belongs to another node
        or is in use, if none can be used, or if that of the metadata log cannot. The latter may be
        one of ``log.dirs``, or one that holds nothing else.
        """
        self._identity = identity
        data_paths = paths
        paths = list(dict.fromkeys([*paths, *([metadata_path] if metadata_path else [])]))
        with self._releasing_on_failure():
            for path in paths:
                try:
                    make_dirs_durably(self._fs, path)
                except OSError as error:
                    self._set_offline(path, str(error))
            usable = [path for path in paths if path not in self._gone_offline]
            ensemble = load_ensemble(self._fs, usable)
            for path, problem in ensemble.failed_dirs.items():
                if isinstance(problem, InvalidMetaProperties):
                    raise problem
                self._set_offline(path, str(problem))
            ensemble.verify(identity.cluster_id, identity.node_id)
            for path in ensemble.empty_dirs:
                self._refuse_data_without_identity(path)
            if metadata_path is not None:
                ensemble.verify_metadata_dir(self._fs, metadata_path)
            for path in usable:
                if path not in self._gone_offline:
                    found = ensemble.properties.get(path)
                    self._attach(path, found, is_data=path in data_paths)
            if metadata_path is not None:
                self._choose_metadata_directory(metadata_path)
            self._ensure_any_online()

    def _refuse_data_without_identity(self, path: str) -> None:
        """Do not take a directory for a new one because its ``meta.properties`` is gone."""
        data = data_folders(self._fs, [path])
        found = describe(data) if data else f"a metadata log ({join(path, METADATA_FOLDER)})"
        if data or log_bytes(self._fs, join(path, METADATA_FOLDER)):
            raise InvalidMetaProperties(
                f"{path} has no meta.properties, which says to which cluster and node it belongs, "
                f"but {found}. Nothing was changed. {HOW_TO_RESTORE}"
            )

    def _choose_metadata_directory(self, path: str) -> None:
        """Find the metadata log's directory, and format it first: see ``verify_metadata_dir``."""
        if path not in self._gone_offline:
            attached = [*self.directories, *self._beside]
            chosen = next(directory for directory in attached if directory.path == path)
            self._format(chosen)
            self.metadata_directory = chosen
        if path in self._gone_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the metadata log's directory {path} cannot be used: {self._gone_offline[path]}",
            )

    def _format(self, directory: LogDirectory) -> None:
        if directory not in self.unformatted:
            return
        identity = self._identity
        properties = MetaProperties(identity.cluster_id, identity.node_id, directory.directory_id)
        try:
            write_meta_properties(self._fs, directory.path, properties, self._clock.now_ms())
        except OSError as error:
            directory.disk.failed("being formatted", error)
            self._gone_offline[directory.path] = str(error)
        self.unformatted.remove(directory)

    def _attach(self, path: str, found: MetaProperties | None, *, is_data: bool) -> None:
        directory_id = None if found is None else found.directory_id
        directory = LogDirectory(
            self._fs,
            path,
            directory_id or random_uuid(self._rng),
            clock=self._clock,
            rng=self._rng,
            producer_config=self._producer_config,
            index_memory=self._index_memory,
            open_files=self._open_files,
            on_failed=self.on_directory_failed,
            on_flushed=self.on_flushed,
        )
        try:
            directory.lock()
            # From here on it must be released, whatever happens.
            (self.directories if is_data else self._beside).append(directory)
            if directory_id is None:
                self.unformatted.append(directory)
            if found is None:
                self.new_directories.append(directory)
            directory.space.make_room()
        except OSError as error:
            directory.disk.failed("being attached", error)
            self._gone_offline[path] = str(error)

    def load(
        self,
        config_for: Callable[[TopicPartition], LogConfig],
        assignment_of: AssignmentOf | None = None,
    ) -> None:
        """Open every partition in the directories that were attached.

        ``config_for`` must be right about compaction: recovery accepts gaps in compacted logs.
        ``assignment_of`` tells where the replicas are according to the metadata log.
        """
        with self._releasing_on_failure():
            for directory in list(self.unformatted):
                self._format(directory)
            if assignment_of is not None:
                self._settle_places(assignment_of)
            for directory in self.online_directories:
                with _unless_offline(directory), directory.disk.guarding("loading"):
                    directory.load(config_for)
                twice = [p for p in directory.logs if self._count(p) > 1]
                if twice:
                    raise InvalidMetaProperties(
                        f"{twice[0]} is in {directory.path} and in another log directory:"
                        " remove the older copy"
                    )
                with _unless_offline(directory), directory.disk.guarding("looking for free space"):
                    directory.space.check()
            self._ensure_any_online()

    def _settle_places(self, assignment_of: AssignmentOf) -> None:
        while True:
            online, any_offline = self.online_directories, bool(self.offline_directories)
            try:
                self.places = settle_places(online, assignment_of, any_offline=any_offline)
                return
            except KafkaError:
                # Another directory has failed, which changes how the folders in the rest are used.
                if online == self.online_directories:
                    raise

    @contextmanager
    def _releasing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.release()
            raise

    def _ensure_any_online(self) -> None:
        if not self.online_directories:
            reasons = "; ".join(f"{path}: {why}" for path, why in self.offline_directories.items())
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can be used: {reasons}"
            )

    def _count(self, partition: TopicPartition) -> int:
        return sum(partition in directory.logs for directory in self.directories)

    def _set_offline(self, path: str, reason: str) -> None:
        logger.error(
            "log directory %s cannot be used, and the broker starts without its partitions: %s",
            path,
            reason,
        )
        self._gone_offline[path] = reason

    # Logs

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories that work."""
        return [directory for directory in self.directories if directory.disk.failure is None]

    @property
    def offline_directories(self) -> dict[str, str]:
        """The directories that do not work, and why: those that failed at start, or since."""
        since = {d.path: d.disk.failure for d in self.directories if d.disk.failure is not None}
        return self._gone_offline | since

    def __iter__(self) -> Iterator[Log]:
        for directory in self.directories:
            yield from directory.logs.values()

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log; it may be in a directory that is offline."""
        directory = self.directory_of(partition)
        return None if directory is None else directory.logs[partition]

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory that a partition's log is in."""
        return next((d for d in self.directories if partition in d.logs), None)

    def get_or_create(
        self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, *, is_new: bool = False
    ) -> Log:
        """Return a partition's log; a new one goes to the directory with the fewest.

        Unless it is known to be new, it is not created while a directory is offline: it may be in
        that one.
        """
        if partition in self.places.elsewhere and not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is in a directory that is offline"
            )
        for directory in self.online_directories:
            if partition in directory.unusable:
                if not is_new:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.unusable[partition])
                directory.set_unusable_aside(partition)
        owner = self.directory_of(partition)
        if owner is not None:
            log = owner.logs[partition]
            if log.topic_id is None:
                owner.assign_topic_id(log, topic_id)
            elif log.topic_id != topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{partition} on disk is of another topic of the same name",
                )
            return log
        online = self.online_directories
        if not online or (not is_new and self.offline_directories):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} may be in a directory that is offline"
            )
        wished = self._preferred.pop(partition, None)
        chosen = [directory for directory in online if directory.path == wished]
        best = chosen[0] if chosen else min(online, key=lambda d: len(d.logs))
        return best.create_log(partition, topic_id, config)

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """Have a log that does not exist yet created in this directory."""
        self._preferred[partition] = path
        while len(self._preferred) > _PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def delete(self, *partitions: TopicPartition) -> None:
        """Delete logs; those in an offline directory stay on its disk until it is back."""
        finish(self.delete_in_steps(partitions))

    def delete_in_steps(self, partitions: Sequence[TopicPartition]) -> PlainSteps[None]:
        """Do the same, one folder in each step; all are gone for everybody with the first."""
        by_directory: dict[LogDirectory, list[TopicPartition]] = {}
        for partition in partitions:
            if (directory := self.directory_of(partition)) is not None:
                by_directory.setdefault(directory, []).append(partition)
        deletions = [directory.delete_logs(found) for directory, found in by_directory.items()]
        failures = []
        unfinished = []
        for deletion in deletions:
            try:
                next(deletion)
                unfinished.append(deletion)
            except StopIteration:
                continue
            except KafkaError as error:
                failures.append(error)
        for deletion in unfinished:
            try:
                yield from deletion
            except KafkaError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def mark_stray(self, partition: TopicPartition) -> None:
        """Set aside a log that is not assigned to this node: it is kept, but not loaded again."""
        if (directory := self.directory_of(partition)) is not None:
            directory.mark_stray(partition)

    def set_producer_id_expiration(self, ms: int) -> None:
        """Remember idle idempotent producers for this long from now on, in every log."""
        self._producer_config.producer_id_expiration_ms = ms

    def set_transaction_verification(self, *, enabled: bool) -> None:
        """Set whether a transaction's first append must be verified from now on, in every log."""
        self._producer_config.transaction_partition_verification_enable = enabled

    # Recurring work

    def next_due_ms(self) -> int:
        """Return when ``run_due`` and ``due_flushes`` are next worth calling, in monotonic time."""
        due = [task.due_ms for task in self._tasks]
        due += [d.next_due_ms for d in self._all_online() if d.next_due_ms is not None]
        return min(due)

    def run_due(self) -> None:
        """Do what is due; a directory that fails at it goes offline, the others go on."""
        finish(self.run_due_in_steps())

    def run_due_in_steps(self) -> PlainSteps[None]:
        """Do the same in steps, between which logs may be used, created and deleted."""
        now_ms = self._clock.monotonic_ms()
        due = [task for task in (*self._tasks, self._space_task) if task.due_ms <= now_ms]
        for task in due:
            task.due_ms = now_ms + task.interval_ms
        for directory in self._all_online():
            with _unless_offline(directory):
                with directory.disk.guarding("deleting files"):
                    yield from directory.deletions.run(now_ms)
                for task in [] if directory in self._beside else due:
                    with directory.disk.guarding(task.name):
                        yield from task.run(directory)

    def due_flushes(self) -> list[PendingFlush]:
        """Return the flushes that a roll or ``flush.ms`` asks for, one for each log."""
        now_ms = self._clock.monotonic_ms()
        found: list[PendingFlush] = []
        for directory in self._all_online():
            with _unless_offline(directory):
                found += directory.take_due_flushes(now_ms)
        return found

    def flush_due_now(self) -> None:
        """Run and complete the flushes that are due, in this thread."""
        for due in self.due_flushes():
            due.complete(due.try_run())

    def _delete_old_segments(self, directory: LogDirectory) -> PlainSteps[None]:
        now_ms = self._clock.now_ms()
        for log in list(directory.logs.values()):
            if directory.logs.get(log.partition) is not log:
                continue
            try:
                yield from delete_old_segments_in_steps(log, now_ms)
            except KafkaError as error:
                # If it fails for one log, the others are still done.
                directory.disk.ensure_online()
                logger.error(
                    "the retention of %s failed, and is retried later: %s", log.partition, error
                )
            yield

    def _remove_expired_producers(self, directory: LogDirectory) -> PlainSteps[None]:
        now_ms = self._clock.now_ms()
        for log in list(directory.logs.values()):
            log.producer_state.remove_expired_producers(now_ms)
            yield

    def close(self, broker_epoch: int = -1, run_all: RunAll = one_by_one) -> None:
        """Stop cleanly. Offline directories stay as they are, for recovery.

        ``run_all`` runs the flushes of the logs, in threads if it has any.
        """
        closing = [
            flush for directory in self.online_directories for flush in directory.prepare_close()
        ]
        errors = run_all([flush.try_run for flush in closing])
        for flush, error in zip(closing, errors, strict=True):
            flush.complete(error)
        for directory in self.directories:
            directory.close(broker_epoch)
        self._let_go()

    def release(self) -> None:
        """Close everything without the mark of a clean stop, as after a failed start."""
        for directory in self.directories:
            directory.release()
        self._let_go()

    def _all_online(self) -> list[LogDirectory]:
        return self.online_directories + [one for one in self._beside if one.disk.failure is None]

    def _let_go(self) -> None:
        self._gone_offline = self.offline_directories
        for directory in self._beside:
            directory.release()
        self._beside = []
        self.directories = []


@contextmanager
def _unless_offline(directory: LogDirectory) -> Iterator[None]:
    """Go on after a failure that has taken the directory offline: its logs report that."""
    try:
        yield
    except KafkaError:
        if directory.disk.failure is None:
            raise
