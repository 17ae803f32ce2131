"""The event loop of a worker process, on its own thread, and its connections to clusters.

Spark calls our code from an ordinary thread, one call after the other, and reuses a worker process
for later tasks. So the loop and its connections stay for as long as the process does: a task finds
them open. A forked process starts afresh, since threads and sockets are not its own.

After each task Spark makes the process collect garbage, which examines everything that was
imported: up to 50 ms each time. So what exists after the first task is exempted from it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from dohle.client import ClientConfig, Cluster

_Result = TypeVar("_Result")

_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_clusters: dict[tuple[str, ClientConfig], Cluster] = {}
#: The kinds of tasks that have run in this process: they import different things.
_done: set[str] = set()


def task_done(what: str) -> None:
    """Report that a task has read or written its rows."""
    if what not in _done:
        _done.add(what)
        gc.collect()
        gc.freeze()


def submit(call: Coroutine[Any, Any, _Result]) -> Future[_Result]:
    """Start a call on the loop; its result is awaited later."""
    return asyncio.run_coroutine_threadsafe(call, _running_loop())


def run(call: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a call on the loop and wait for its result; a caller that stops waiting cancels it."""
    future = submit(call)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def cluster(bootstrap: str, config: ClientConfig) -> Cluster:
    """Return this process's connections to a cluster; use them through :func:`run`."""

    async def find() -> Cluster:
        key = (bootstrap, config)
        found = _clusters.get(key)
        if found is None:
            found = _clusters[key] = Cluster(bootstrap, config)
        return found

    return run(find())


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _starting:
        if _loop is None:
            _loop = _new_loop()
            threading.Thread(target=_loop.run_forever, name="dohle-spark", daemon=True).start()
        return _loop


def _new_loop() -> asyncio.AbstractEventLoop:
    """Create a loop of uvloop if it is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _begin_anew() -> None:
    global _loop, _starting
    _loop = None
    _starting = threading.Lock()
    _clusters.clear()


os.register_at_fork(after_in_child=_begin_anew)
