"""Running a node in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from dohle.core.config.static import BrokerConfig
from dohle.server.node import Node

logger = logging.getLogger("dohle.server")


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
) -> int:
    """Start a node, and stop it at SIGTERM, SIGINT or SIGHUP; return the exit code."""
    raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    failures: list[str] = []

    def fatal(reason: str) -> None:
        logger.critical("stopping: %s", reason)
        failures.append(reason)
        stopping.set()

    # SIGHUP: the terminal that it was started in is closed. Under nohup it is to be ignored.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopping.set)
    node = Node(config, on_fatal=fatal, accept_metadata_loss=accept_metadata_loss)
    await node.start()
    # What exists now lives as long as the node: the garbage collector need not scan it again.
    gc.collect()
    gc.freeze()
    on_started(node)
    await stopping.wait()
    await node.stop()
    return 1 if failures else 0


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit: connections and segments need one each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
