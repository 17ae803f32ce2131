"""The event loop of a worker process, on a thread of its own, and the clusters it is connected to.

Spark calls our code from an ordinary thread, one call after the other, and uses a worker process
again for later tasks. So the loop and its connections stay for as long as the process does: a task
finds them open. A process that was forked off begins anew, since threads and sockets are not its
own.

After each task Spark lets the process collect garbage, and all that was imported is looked through:
up to 50 ms each time. What is there when the first task is through is therefore left out of it.
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
#: What tasks have been through in this process: they import different things.
_done: set[str] = set()


def task_done(what: str) -> None:
    """Say that a task has read or written its rows."""
    if what not in _done:
        _done.add(what)
        gc.collect()
        gc.freeze()


def submit(call: Coroutine[Any, Any, _Result]) -> Future[_Result]:
    """Start a call on the loop; its result is waited for later."""
    return asyncio.run_coroutine_threadsafe(call, _running_loop())


def run(call: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a call on the loop and wait for its result; who stops waiting cancels the call."""
    future = submit(call)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def cluster(bootstrap: str, config: ClientConfig) -> Cluster:
    """Return this process's connections to a cluster; what they do is done by :func:`run`."""

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
    """Make a loop of uvloop's if it is installed, else one of asyncio's own."""
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
