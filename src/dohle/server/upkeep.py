"""What recurs as long as a node runs: retention, checkpoints, flushes, metadata snapshots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dohle.server.disk_waits import wait_for_disk
from dohle.server.net.slices import Slices
from dohle.server.shared import Shared
from dohle.storage.directory.pending_flush import PendingFlush

logger = logging.getLogger("dohle.server")

_INTERVAL_MS_MAX = 1_000
_INTERVAL_MS_MIN = 10


class Upkeep:
    """``start()``, then ``stop()``."""

    def __init__(self, shared: Shared, write_snapshot_if_due: Callable[[], None]) -> None:
        self._shared = shared
        self._logs = shared.logs
        self._clock = shared.host.clock
        self._write_snapshot_if_due = write_snapshot_if_due
        self._timer: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self._flushes: set[asyncio.Future[None]] = set()

    def start(self) -> None:
        """Look for what is due, now and then."""
        delay_ms = min(self._logs.next_due_ms() - self._clock.monotonic_ms(), _INTERVAL_MS_MAX)
        delay_s = max(delay_ms, _INTERVAL_MS_MIN) / 1000
        self._timer = self._shared.loop.call_later(delay_s, self._begin_due)

    def _begin_due(self) -> None:
        loop = self._shared.loop
        try:
            if self._round is None:
                self._round = loop.create_task(self._run_due())
            for flush in self._logs.due_flushes():
                task = loop.create_task(self._flush(flush))
                self._flushes.add(task)
                task.add_done_callback(self._flushes.discard)
            self._write_snapshot_if_due()
        except Exception:
            # Whatever it was: flushes and snapshots must go on.
            logger.exception(
                "a round of flushes failed; the next one tries again. Please report this."
            )
        finally:
            self.start()

    async def _run_due(self) -> None:
        """Do what recurs in the logs; with many files to remove that takes long."""
        try:
            await Slices(self._shared.turns).run(self._logs.run_due_in_steps())
        except Exception:
            # Whatever it was: retention and checkpoints must go on.
            logger.exception(
                "a round of retention and checkpoints failed; the next one tries again."
                " Please report this."
            )
        finally:
            self._round = None

    async def _flush(self, flush: PendingFlush) -> None:
        started_s = self._clock.monotonic_s()
        try:
            await self._shared.host.run_in_thread(flush.run)
        except OSError as error:
            flush.complete(error)
        else:
            self._shared.sources.flushed(self._clock.monotonic_s() - started_s)
            flush.complete(None)

    def cancel(self) -> None:
        """Begin nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    async def stop(self) -> None:
        """Return when nothing runs any more."""
        self.cancel()
        if self._round is not None:
            # Files that were to be removed are removed after the next start.
            self._round.cancel()
            await asyncio.wait([self._round])
        await wait_for_disk(self._clock, "flushes", set(self._flushes))
