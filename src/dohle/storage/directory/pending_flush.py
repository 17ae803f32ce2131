"""Flushes of logs that are prepared but not run yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from dohle.core.errors import KafkaError
from dohle.storage.files import WholeDisk
from dohle.storage.flush import FlushJob, FlushSchedule
from dohle.storage.log import Log

#: How many logs are closed by one call in a thread: to hand over each costs more than to close it.
_CLOSED_AT_A_TIME = 50
#: If more logs than that are closed, their disk is synced as a whole, where it can be.
SYNCED_SINGLY_MAX = 200


@dataclass(frozen=True, slots=True)
class PendingFlush:
    """One log's flush. The log has no other one until ``complete`` is called."""

    flushes: FlushSchedule[Log]
    log: Log
    job: FlushJob

    def run(self) -> None:
        """Sync the files, in any thread: it uses nothing else. OSError if that fails."""
        self.job.run()

    def try_run(self) -> OSError | None:
        """Do as ``run`` does, but return the error."""
        try:
            self.job.run()
        except OSError as error:
            return error
        return None

    def complete(self, error: OSError | None = None) -> None:
        """Move the recovery point, or take the log offline. Only where the logs are used."""
        if error is not None:
            self.log.disk.failed(f"flushing {self.log.partition}", error)
        else:
            self.log.complete_flush(self.job)
        _schedule_again(self.flushes, self.log)


@dataclass(slots=True)
class PendingClose:
    """The flushes that a clean stop of a directory takes: those of its logs with unsynced files."""

    flushes: Sequence[PendingFlush]
    #: Where all of them are synced at once, if that is possible and worthwhile.
    disk: WholeDisk | None
    _errors: dict[Log, OSError] = field(default_factory=dict)
    _disk_error: OSError | None = None

    def rounds(self) -> Iterator[list[Callable[[], None]]]:
        """Yield rounds of jobs: each round after the one before, its jobs in any threads.

        What fails is known to ``complete``.
        """
        if self.disk is None:
            yield self._each(self.flushes, FlushJob.run)
            return
        yield self._each(self.flushes, FlushJob.write)
        yield [self._sync_disk]
        # A file replaces another only when it is on the disk: after a power cut there is one.
        if replacing := [flush for flush in self.flushes if flush.job.renames]:
            yield self._each(replacing, FlushJob.rename)
            yield [self._sync_disk]

    def _each(
        self, flushes: Sequence[PendingFlush], work: Callable[[FlushJob], None]
    ) -> list[Callable[[], None]]:
        return [
            partial(self._try_each, flushes[start : start + _CLOSED_AT_A_TIME], work)
            for start in range(0, len(flushes), _CLOSED_AT_A_TIME)
        ]

    def _try_each(self, flushes: Sequence[PendingFlush], work: Callable[[FlushJob], None]) -> None:
        for flush in flushes:
            if self._disk_error is None and flush.log not in self._errors:
                try:
                    work(flush.job)
                except OSError as error:
                    self._errors[flush.log] = error

    def _sync_disk(self) -> None:
        assert self.disk is not None
        if self._disk_error is None:
            try:
                self.disk.sync()
            except OSError as error:
                self._disk_error = error

    def complete(self) -> None:
        """Move the recovery points, or take offline what has failed."""
        for flush in self.flushes:
            flush.complete(self._errors.get(flush.log, self._disk_error))


def take_due_flushes(flushes: FlushSchedule[Log], now_ms: int) -> list[PendingFlush]:
    """Prepare the flushes that are due, each log's once until it is complete."""
    found: list[PendingFlush] = []
    for log in flushes.take(now_ms):
        try:
            job = log.prepare_due_flush()
        except KafkaError:
            if log.disk.lost is None:
                raise
            continue
        if job is None:
            _schedule_again(flushes, log)
        else:
            found.append(PendingFlush(flushes, log, job))
    return found


def _schedule_again(flushes: FlushSchedule[Log], log: Log) -> None:
    if flushes.landed(log) and (due_ms := log.flushing.due_ms) is not None:
        flushes.flush_at(log, due_ms)
