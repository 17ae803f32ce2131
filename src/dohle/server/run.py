"""Running a node in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from dohle.core.config.static import BrokerConfig
from dohle.server.net.collector import COLLECTOR
from dohle.server.node import Node

logger = logging.getLogger("dohle.server")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: From then on in a stop, a signal is a second one.
_SECOND_SIGNAL_S = 1.0


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop if it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def serve(
    config: BrokerConfig,
    on_started: Callable[[Node], None],
    *,
    accept_metadata_loss: bool = False,
    lifeline: int | None = None,
) -> int:
    """Start a node, and stop it at SIGTERM, SIGINT or SIGHUP; return the exit code.

    ``lifeline`` is the reading end of a pipe: when the other end is closed, the node stops, too.
    """
    raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    failures: list[str] = []

    def fatal(reason: str) -> None:
        logger.critical("stopping: %s", reason)
        failures.append(reason)
        stopping.set()

    # SIGHUP: the terminal that it was started in is closed. Under nohup it is to be ignored.
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopping.set)
    if lifeline is not None:
        _watch(loop, lifeline, stopping.set)
    node = Node(config, on_fatal=fatal, accept_metadata_loss=accept_metadata_loss)
    if not await _start_unless(stopping, node):
        logger.info("told to stop while starting: the next start begins anew")
        return 1 if failures else 0
    COLLECTOR.own_process()
    on_started(node)
    await stopping.wait()
    logger.info("stopping. A second signal ends it at once: the next start then checks the logs.")
    # Not sooner: one wish to stop may come as two signals.
    loop.call_later(_SECOND_SIGNAL_S, _end_at_signal)
    await node.stop()
    return 1 if failures else 0


def _watch(loop: asyncio.AbstractEventLoop, lifeline: int, on_end: Callable[[], None]) -> None:
    """Tell when nobody can write to a pipe any more; what is written is of no interest."""

    def read() -> None:
        if not os.read(lifeline, 4096):
            loop.remove_reader(lifeline)
            on_end()

    loop.add_reader(lifeline, read)


def _end_at_signal() -> None:
    """Let the next signal end the process, even if a thread waits for a disk for ever."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


async def _start_unless(stopping: asyncio.Event, node: Node) -> bool:
    """Start a node; give that up, and return False, if it is told to stop meanwhile."""
    start = asyncio.ensure_future(node.start())
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
        await asyncio.wait((start,))
        # A start that came to its end in this very moment is followed by a stop.
        if start.cancelled():
            return False
    stop.cancel()
    await start
    return True


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit: connections and segments need one each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
