"""Flushes of logs that are prepared but not run yet."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.errors import KafkaError
from dohle.storage.flush import FlushJob, FlushSchedule
from dohle.storage.log import Log


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
