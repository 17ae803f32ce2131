"""One loop in a thread of its own, for callers that have none.

All of a process share it. It is made when it is first needed, and anew in a process that was forked
since. It ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class LoopThread:
    """A loop that runs in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="dohle-client", daemon=True
        )
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine to its end and return its result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "this is the thread of the client's loop, which cannot wait for itself: in "
                "listeners and partitioners use dohle.client, or another thread"
            )
        return self.wait_for(asyncio.run_coroutine_threadsafe(work, self.loop))

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Call a function on the loop and return its result."""

        async def call() -> _Result:
            return function()

        return self.call(call())

    def wait_for(self, outcome: Future[_Result]) -> _Result:
        """Wait for a future; what interrupts the wait (Ctrl-C) cancels what is waited for."""
        try:
            return outcome.result()
        except BaseException:
            outcome.cancel()
            raise


_lock = threading.Lock()
_shared: tuple[int, LoopThread] | None = None


def loop_thread() -> LoopThread:
    """Return the loop of this process."""
    global _shared
    with _lock:
        if _shared is None or _shared[0] != os.getpid():
            _shared = (os.getpid(), LoopThread())
        return _shared[1]
