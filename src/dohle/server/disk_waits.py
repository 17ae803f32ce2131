"""Waiting for disks at a stop: nobody is served meanwhile, so the operator is told of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from contextlib import closing
from typing import Any

from dohle.core.host import ThreadPool
from dohle.core.seams import Clock
from dohle.server.net.slices import Slices
from dohle.server.shared import Shared
from dohle.storage.directory.pending_flush import PendingClose

logger = logging.getLogger("dohle.server")

#: How often a stop tells what it waits for.
_TOLD_EACH_S = 5.0


async def close_logs(shared: Shared, threads_per_directory: int, broker_epoch: int) -> None:
    """Flush all logs, each directory in threads of its own, and mark them as closed cleanly."""
    logs = shared.logs
    pending = await Slices(shared.turns).run(logs.prepare_close())
    threads = threads_per_directory * max(1, len(logs.directories))
    pool = shared.host.thread_pool(threads, "log-close")
    with closing(pool):
        clock = shared.host.clock
        await asyncio.gather(*(_flush_closed(clock, each, pool) for each in pending))
    for each in pending:
        each.complete()
    logs.finish_close(broker_epoch)


async def _flush_closed(clock: Clock, pending: PendingClose, pool: ThreadPool) -> None:
    for work in pending.rounds():
        running = {pool.run(part) for part in work}
        what = f"parts of the flush of {len(pending.flushes)} logs that are closed"
        await wait_for_disk(clock, what, running)
        for part in running:
            part.result()


async def wait_for_disk(clock: Clock, what: str, running: Set[asyncio.Future[Any]]) -> None:
    """Wait for threads, and tell how far they are: a disk may be slow, or stuck."""
    count, begun_s = len(running), clock.monotonic_s()
    while running:
        _, running = await asyncio.wait(running, timeout=_TOLD_EACH_S)
        if running:
            logger.info(
                "no request is taken any more; waiting for the disk: %d of %d %s are done"
                " after %.0f s",
                count - len(running),
                count,
                what,
                clock.monotonic_s() - begun_s,
            )
