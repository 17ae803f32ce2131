"""The cleaning of all compacted logs of a node: which is next, and what becomes of a round.

Nothing here runs by itself. The node's driver takes the steps of ``clean_next`` again and again,
as many of them at a time as there are cleaner threads; each chooses the dirtiest log that nobody
cleans and takes one round through it. Rounds go on beside whatever happens to their logs: before
anything of a log is changed, it is made sure that the log is still to be cleaned.

A log whose records cannot be cleaned is kept apart, with the reason, until the next start; it grows
on, and the others are cleaned. A disk that fails takes its directory offline, as everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from functools import partial
from itertools import count
from typing import Final, NamedTuple, TypeVar

from dohle.core.errors import KafkaError
from dohle.core.ids import TopicPartition
from dohle.core.seams import Clock
from dohle.core.steps import Blocking, PlainSteps, Steps
from dohle.storage.cleaning.round import CleaningRound
from dohle.storage.cleaning.round_values import (
    CleanerSettings,
    CleaningAborted,
    Statistics,
    Uncleanable,
)
from dohle.storage.cleaning.selection import Cleanable, look_in_steps
from dohle.storage.directory.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.directory_checkpoints import blocking
from dohle.storage.directory.manager import LogManager
from dohle.storage.directory.retention import delete_old_segments_in_steps
from dohle.storage.files import NO_DESCRIPTOR
from dohle.storage.log import Log

logger = logging.getLogger("dohle.storage.cleaner")

T = TypeVar("T")

#: The threads that jobs of rounds run in.
CLEANER_THREADS: Final = "log-cleaner"
#: What may be tried again later: there is no room for the new files, or no descriptor.
_PASSING = frozenset({ENOSPC, EDQUOT}) | NO_DESCRIPTOR


class _Postponed(CleaningAborted):
    """The round can only be repeated later."""


class FinishedRound(NamedTuple):
    """A round that came to its end."""

    statistics: Statistics
    took_s: float

    @property
    def recopy_percent(self) -> float:
        """How much of what it read it has kept."""
        done = self.statistics
        return 100 * done.bytes_written / done.bytes_read if done.bytes_read else 0.0


class CleaningState(NamedTuple):
    """How far a log is cleaned."""

    dirty_ratio: float
    #: When its last round ended, if it had one since the start.
    last_cleaned_ms: int | None
    #: Why it cannot be cleaned.
    uncleanable: str | None


class LogCleaner:
    """Chooses logs, cleans them, and remembers what came of it."""

    def __init__(self, logs: LogManager, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        # The rounds that are under way, each until its last job has ended.
        self._rounds: dict[Log, CleaningRound] = {}
        self._uncleanable: dict[Log, str] = {}
        self._cleaned_ms: dict[Log, int] = {}
        # What had no room, or no descriptor: left until nothing else is to be cleaned.
        self._postponed: set[Log] = set()
        self._writes: set[int] = set()
        self.is_stopping = False
        # How often all rounds were given up.
        self._given_up = 0
        #: What the last look at all logs has found, and when, in monotonic time.
        self.dirty_ratio_max = 0.0
        self.overdue_ms_max = 0
        self.last_run_ms: int | None = None
        #: How many rounds came to their end, and the last of them.
        self.round_count = 0
        self.last_round: FinishedRound | None = None

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The logs that cannot be cleaned, and why."""
        return {log.partition: reason for log, reason in self._uncleanable.items()}

    def describe(self, log: Log) -> PlainSteps[CleaningState | None]:
        """Return how far a log is cleaned; None if it is not compacted, or its disk fails."""
        if not log.config.compact:
            return None
        cleanable = yield from self._look_at(log)
        if cleanable is None:
            return None
        return CleaningState(cleanable.ratio, self._cleaned_ms.get(log), self._uncleanable.get(log))

    @property
    def ms_since_last_run(self) -> int:
        """How long ago all logs were last looked at."""
        return self._clock.monotonic_ms() - (self.last_run_ms or 0)

    def stop(self) -> None:
        """Give up all rounds; their jobs end soon, and nothing is begun any more."""
        self.is_stopping = True
        self.give_up_rounds()

    def give_up_rounds(self) -> None:
        """End what is under way, without a new checkpoint: what was swapped stays swapped."""
        self._given_up += 1
        for log, cleaning in self._rounds.items():
            try:
                _guarded(log, cleaning, cleaning.abort)
            except KafkaError as error:
                logger.info("%s: cleaning was given up: %s", log.partition, error)

    # Choosing

    def clean_next(self, settings: CleanerSettings) -> Steps[bool]:
        """Take a round through the dirtiest log; False if none is dirty enough."""
        given_up = self._given_up
        chosen = yield from self._choose()
        if chosen is None:
            self._postponed.clear()
            return False
        directory, log = chosen
        cleanable = yield from self._look_at(log)
        if cleanable is None or not cleanable.is_eligible or not self._is_candidate(directory, log):
            # Something has happened to it meanwhile.
            return True
        if given_up != self._given_up:
            # The settings have changed while it was looked at.
            return True
        try:
            yield from self._clean(directory, log, cleanable, settings)
        except _Postponed as reason:
            logger.warning("%s: cleaning is put off: %s", log.partition, reason)
            self._postponed.add(log)
        except CleaningAborted as reason:
            logger.info("%s: cleaning was given up: %s", log.partition, reason)
        except Uncleanable as error:
            self._set_apart(log, error.reason)
        except KafkaError as error:
            logger.info("%s: cleaning was given up: %s", log.partition, error)
        except Exception as error:
            logger.exception("%s: cleaning failed. Please report this.", log.partition)
            self._set_apart(log, repr(error))
        return True

    def _choose(self) -> Steps[tuple[LogDirectory, Log] | None]:
        """Return the dirtiest log, and its directory."""
        self._forget_vanished()
        best: tuple[LogDirectory, Log] | None = None
        highest = dirtiest = 0.0
        overdue_ms = 0
        for directory in self._logs.online_directories:
            is_checkpoint_wrong = False
            for log in tuple(directory.logs.values()):
                if not log.config.compact or not self._is_candidate(directory, log):
                    continue
                yield None
                if not self._is_candidate(directory, log):
                    continue
                cleanable = yield from self._look_at(log)
                if cleanable is None or not self._is_candidate(directory, log):
                    continue
                if cleanable.checkpoint_is_wrong:
                    # Kafka corrects it at once, chosen or not.
                    log.cleaner_offset = cleanable.first_dirty_offset
                    is_checkpoint_wrong = True
                dirtiest = max(dirtiest, cleanable.ratio)
                overdue_ms = max(overdue_ms, cleanable.overdue_ms)
                if cleanable.is_eligible and cleanable.ratio > highest:
                    best, highest = (directory, log), cleanable.ratio
            if is_checkpoint_wrong:
                yield from self._write_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT)
        self.dirty_ratio_max, self.overdue_ms_max = dirtiest, overdue_ms
        self.last_run_ms = self._clock.monotonic_ms()
        return best

    def _look_at(self, log: Log) -> PlainSteps[Cleanable | None]:
        try:
            with log.disk.guarding_read(f"looking for what to clean in {log.partition}"):
                return (yield from look_in_steps(log, log.cleaner_offset, self._clock.now_ms()))
        except KafkaError:
            return None  # It is offline now, and that was told.
        except Exception as error:
            logger.exception("%s cannot be looked at. Please report this.", log.partition)
            self._set_apart(log, repr(error))
            return None

    def _is_candidate(self, directory: LogDirectory, log: Log) -> bool:
        return (
            log not in self._rounds
            and log not in self._uncleanable
            and log not in self._postponed
            # A job may still be at work in the folder of a log that was deleted since.
            and all(each.directory != log.directory for each in self._rounds.values())
            and self._is_to_be_cleaned(directory, log)
        )

    def _is_to_be_cleaned(self, directory: LogDirectory, log: Log) -> bool:
        return (
            not self.is_stopping
            and log.disk.failure is None
            and log.config.compact
            and directory.logs.get(log.partition) is log
            # Its files are being copied by their names.
            and not any(log.partition in each.futures.paths for each in self._logs.directories)
        )

    # A round

    def _clean(
        self, directory: LogDirectory, log: Log, cleanable: Cleanable, settings: CleanerSettings
    ) -> Steps[None]:
        started_s = self._clock.monotonic_s()
        cleaning = CleaningRound(log, cleanable, settings, self._clock.now_ms())
        self._rounds[log] = cleaning
        try:
            yield from self._announce(directory, log, cleanable)
            if log.cleaning is not cleaning or not self._is_to_be_cleaned(directory, log):
                raise CleaningAborted("the log was truncated, moved or deleted")
            while (job := _guarded(log, cleaning, cleaning.next_job)) is not None:
                yield Blocking(job.run, CLEANER_THREADS)
                if log.cleaning is not cleaning or not self._is_to_be_cleaned(directory, log):
                    _guarded(log, cleaning, cleaning.abort)
                _guarded(log, cleaning, partial(cleaning.complete, job))
            log.cleaner_offset = cleaning.end_offset
        except BaseException:
            cleaning.abort()
            raise
        finally:
            del self._rounds[log]
        yield from self._write_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT)
        self._tell(log, cleaning, cleanable, self._clock.monotonic_s() - started_s)

    def _announce(self, directory: LogDirectory, log: Log, cleanable: Cleanable) -> Steps[None]:
        """Let recovery know, before there are gaps, where they may be (ADR 4).

        They are below the recovery point, and the log is one that is cleaned.
        """
        end_offset = cleanable.first_uncleanable_offset
        with log.disk.guarding(f"flushing {log.partition}"):
            if (flush := log.prepare_flush(end_offset)) is not None:
                yield from blocking(flush.run)
                log.complete_flush(flush)
        if log.recovery_point < end_offset:
            raise CleaningAborted("the log was truncated or moved")
        yield from self._write_checkpoint(directory, RECOVERY_POINT_CHECKPOINT)
        if log.cleaner_offset is None:
            log.cleaner_offset = cleanable.first_dirty_offset
            yield from self._write_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT)

    def _write_checkpoint(self, directory: LogDirectory, name: str) -> Steps[None]:
        # Several may be written at the same time; a name that a crash leaves is used again.
        number = next(each for each in count() if each not in self._writes)
        self._writes.add(number)
        try:
            with directory.disk.guarding("writing a checkpoint of the cleaner"):
                yield from directory.checkpoints.write_in_steps(name, f".cleaner-{number}.tmp")
        finally:
            self._writes.discard(number)

    def _tell(self, log: Log, cleaning: CleaningRound, cleanable: Cleanable, took_s: float) -> None:
        done = cleaning.statistics
        logger.info(
            "%s: cleaned offsets %d to %d in %.1f s: %d bytes became %d, %d records became %d",
            log.partition,
            cleanable.first_dirty_offset,
            cleaning.end_offset,
            took_s,
            done.bytes_read,
            done.bytes_written,
            done.messages_read,
            done.messages_written,
        )
        if done.invalid_messages:
            logger.warning(
                "%s: %d records without a key were dropped: they are from before the topic was"
                " compacted",
                log.partition,
                done.invalid_messages,
            )
        self._cleaned_ms[log] = self._clock.now_ms()
        self.round_count += 1
        self.last_round = FinishedRound(done, took_s)

    # What cannot be cleaned

    def _set_apart(self, log: Log, reason: str) -> None:
        self._uncleanable[log] = reason
        logger.error(
            "%s is not cleaned any more, and grows: %s. Other logs are cleaned. The next start of"
            " the broker tries again.",
            log.partition,
            reason,
        )

    def _forget_vanished(self) -> None:
        for log in {**self._uncleanable, **self._cleaned_ms}:
            if self._logs.get(log.partition) is not log:
                self._uncleanable.pop(log, None)
                self._cleaned_ms.pop(log, None)

    # Retention

    def expire(self) -> PlainSteps[None]:
        """Delete old segments of compacted logs; with ``delete`` in their policy by age and size.

        As in Kafka, this is the cleaner's: so nothing is deleted from a log while it is cleaned.
        """
        now_ms = self._clock.now_ms()
        for directory in self._logs.online_directories:
            for log in tuple(directory.logs.values()):
                if not log.config.compact or not self._is_candidate(directory, log):
                    continue
                try:
                    yield from delete_old_segments_in_steps(log, now_ms)
                except KafkaError as error:
                    logger.error(
                        "the retention of %s failed, and is retried later: %s", log.partition, error
                    )
                yield


def _guarded(log: Log, cleaning: CleaningRound, work: Callable[[], T]) -> T:
    """Take the log, or its directory, offline if its disk fails."""
    try:
        return work()
    except OSError as error:
        if error.errno in _PASSING and not cleaning.has_failed:
            raise _Postponed(str(error)) from error
        raise log.disk.failed(f"cleaning {log.partition}", error) from error
