"""Flushes of logs that are prepared but not run yet."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.storage.directory.disk_status import DiskStatus
from dohle.storage.flush import FlushJob, FlushSchedule
from dohle.storage.log import Log


@dataclass(frozen=True, slots=True)
class PendingFlush:
    """One log's flush. The log has no other one until ``complete`` is called."""

    disk: DiskStatus
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
        """Move the recovery point, or take the directory offline. Call in the logs' own thread."""
        if error is not None:
            self.disk.failed(f"flushing {self.log.partition}", error)
        else:
            self.log.complete_flush(self.job)
        _schedule_again(self.flushes, self.log)


def take_due_flushes(
    disk: DiskStatus, flushes: FlushSchedule[Log], now_ms: int
) -> list[PendingFlush]:
    """Prepare the flushes that are due. A log has only one at a time."""
    found: list[PendingFlush] = []
    for log in flushes.take(now_ms):
        job = log.prepare_due_flush()
        if job is None:
            _schedule_again(flushes, log)
        else:
            found.append(PendingFlush(disk, flushes, log, job))
    return found


def _schedule_again(flushes: FlushSchedule[Log], log: Log) -> None:
    if flushes.landed(log) and (due_ms := log.flushing.due_ms) is not None:
        flushes.flush_at(log, due_ms)
