"""All logs of a node: opening its directories, placing partitions, and the work that recurs.

Nothing here runs by itself. At ``next_due_ms`` the node's driver calls ``run_due``. For each of
``due_flushes`` it calls ``run`` in a thread that may block, then ``complete`` on its own thread.
The clocks come through the seam, so a test goes through weeks of retention without waiting.

Which directories there are is known to ``attached``, what recurs to ``recurring``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition, Uuid
from dohle.core.seams import Clock, Rng
from dohle.core.steps import PlainSteps, Steps, finish
from dohle.storage.config import LogConfig, LogManagerConfig
from dohle.storage.directory.attached import AttachedDirectories
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.meta_properties import InvalidMetaProperties
from dohle.storage.directory.pending_flush import PendingClose, PendingFlush
from dohle.storage.directory.recurring import RecurringTasks
from dohle.storage.files import FileSystem
from dohle.storage.log import Log
from dohle.storage.moves.places import AssignmentOf, LoadedPlaces, settle_places
from dohle.storage.open_files import OpenFiles
from dohle.storage.producers.state import ProducerStateConfig
from dohle.storage.segment.index import IndexMemory

#: How many requests for the directories of logs that do not exist yet are remembered.
_PREFERRED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Identity:
    """Which node of which cluster the directories belong to."""

    cluster_id: str
    node_id: BrokerId


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
        self._attached = AttachedDirectories(fs, clock, rng, self._make_directory)
        self.places = LoadedPlaces()
        # In which directories an operator wants logs that do not exist yet.
        self._preferred: dict[TopicPartition, str] = {}
        self._tasks = RecurringTasks(clock, self._config)

    def _make_directory(self, path: str, directory_id: Uuid, holds_records: bool) -> LogDirectory:
        return LogDirectory(
            self._fs,
            path,
            directory_id,
            clock=self._clock,
            rng=self._rng,
            producer_config=self._producer_config,
            index_memory=self._index_memory,
            open_files=self._open_files,
            holds_records=holds_records,
            on_failed=self.on_directory_failed,
            on_flushed=self.on_flushed,
        )

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
        """Lock and check the directories: see ``AttachedDirectories.attach``."""
        with self._releasing_on_failure():
            self._attached.attach(paths, identity.cluster_id, identity.node_id, metadata_path)

    def load(
        self,
        config_for: Callable[[TopicPartition], LogConfig],
        assignment_of: AssignmentOf | None = None,
    ) -> None:
        """Do as ``load_in_steps`` does, in one go."""
        finish(self.load_in_steps(config_for, assignment_of))

    def load_in_steps(
        self,
        config_for: Callable[[TopicPartition], LogConfig],
        assignment_of: AssignmentOf | None = None,
    ) -> PlainSteps[None]:
        """Open every partition in the directories that were attached, one in each step.

        ``config_for`` must be right about compaction: where Kafka wrote, gaps are accepted then.
        ``assignment_of`` tells where the replicas are according to the metadata log.
        """
        with self._releasing_on_failure():
            self._attached.format_all()
            if assignment_of is not None:
                self._settle_places(assignment_of)
            for directory in self.online_directories:
                with _unless_offline(directory), directory.disk.guarding("loading"):
                    yield from directory.load(config_for)
                twice = [p for p in directory.logs if self._count(p) > 1]
                if twice:
                    raise InvalidMetaProperties(
                        f"{twice[0]} is in {directory.path} and in another log directory:"
                        " remove the older copy"
                    )
                with _unless_offline(directory), directory.disk.guarding("looking for free space"):
                    directory.space.check()
            for directory in self._attached.beside:
                with _unless_offline(directory), directory.disk.guarding("looking for free space"):
                    directory.space.check()
            self._attached.ensure_any_online()

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

    def _count(self, partition: TopicPartition) -> int:
        return sum(partition in directory.logs for directory in self.directories)

    # Logs

    @property
    def directories(self) -> list[LogDirectory]:
        """The directories with records."""
        return self._attached.data

    @property
    def new_directories(self) -> list[LogDirectory]:
        """Those directories that had no ``meta.properties`` at all."""
        return self._attached.new

    @property
    def metadata_directory(self) -> LogDirectory | None:
        """The directory of the metadata log, if its path was given to ``attach``."""
        return self._attached.metadata

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories that work."""
        return self._attached.online

    @property
    def offline_directories(self) -> dict[str, str]:
        """The directories that do not work, and why: those that failed at start, or since."""
        return self._attached.offline

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

    def delete_in_steps(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Do the same, one folder in each step; all are gone for everybody with the first."""
        yield from self._in_each(partitions, lambda directory, found: directory.delete_logs(found))

    def mark_stray(self, *partitions: TopicPartition) -> None:
        """Set aside logs that are not assigned to this node: kept, but not loaded again."""
        finish(self.mark_stray_in_steps(partitions))

    def mark_stray_in_steps(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Do the same, one folder in each step."""
        yield from self._in_each(partitions, lambda directory, found: directory.mark_strays(found))

    def _in_each(
        self,
        partitions: Sequence[TopicPartition],
        work: Callable[[LogDirectory, Sequence[TopicPartition]], Steps[None]],
    ) -> Steps[None]:
        """Work on the logs of each directory, though one may fail.

        The first step, which is to need nothing, is taken in all of them before any goes on.
        """
        by_directory: dict[LogDirectory, list[TopicPartition]] = {}
        for partition in partitions:
            if (directory := self.directory_of(partition)) is not None:
                by_directory.setdefault(directory, []).append(partition)
        failures: list[KafkaError] = []
        unfinished: list[Steps[None]] = []
        for directory, found in by_directory.items():
            begun = work(directory, found)
            try:
                next(begun)
                unfinished.append(begun)
            except StopIteration:
                continue
            except KafkaError as error:
                failures.append(error)
        for begun in unfinished:
            try:
                yield from begun
            except KafkaError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def set_producer_id_expiration(self, ms: int) -> None:
        """Remember idle idempotent producers for this long from now on, in every log."""
        self._producer_config.producer_id_expiration_ms = ms

    def set_transaction_verification(self, *, enabled: bool) -> None:
        """Set whether a transaction's first append must be verified from now on, in every log."""
        self._producer_config.transaction_partition_verification_enable = enabled

    # Recurring work

    def next_due_ms(self) -> int:
        """Return when ``run_due`` and ``due_flushes`` are next worth calling, in monotonic time."""
        due = [self._tasks.next_due_ms]
        due += [d.next_due_ms for d in self._all_online() if d.next_due_ms is not None]
        return min(due)

    def run_due(self) -> None:
        """Do what is due; a directory that fails at it goes offline, the others go on."""
        finish(self.run_due_in_steps())

    def run_due_in_steps(self) -> Steps[None]:
        """Do the same in steps, between which logs may be used, created and deleted."""
        now_ms = self._clock.monotonic_ms()
        due = self._tasks.take_due(now_ms)
        for directory in self._all_online():
            with _unless_offline(directory):
                with directory.disk.guarding("deleting files"):
                    yield from directory.deletions.run(now_ms)
                for task in due:
                    if task.is_for_all or directory not in self._attached.beside:
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

    def close(self, broker_epoch: int = -1) -> None:
        """Stop cleanly, in this thread. Offline directories stay as they are, for recovery."""
        for closing in finish(self.prepare_close()):
            for work in closing.rounds():
                for part in work:
                    part()
            closing.complete()
        self.finish_close(broker_epoch)

    def prepare_close(self) -> PlainSteps[list[PendingClose]]:
        """Write what a clean stop leaves in the logs; return the flushes that must come first.

        When they are complete, ``finish_close`` follows.
        """
        closing: list[PendingClose] = []
        for directory in self.online_directories:
            closing += [(yield from directory.prepare_close())]
        return closing

    def finish_close(self, broker_epoch: int) -> None:
        """Mark the directories as closed cleanly, when all flushes are complete."""
        for directory in self.directories:
            directory.close(broker_epoch)
        self._attached.release()

    def release(self) -> None:
        """Close everything without the mark of a clean stop, as after a failed start."""
        self._attached.release()

    def _all_online(self) -> list[LogDirectory]:
        return self._attached.online + self._attached.online_beside


@contextmanager
def _unless_offline(directory: LogDirectory) -> Iterator[None]:
    """Go on after a failure that has taken the directory offline: its logs report that."""
    try:
        yield
    except KafkaError:
        if directory.disk.failure is None:
            raise
