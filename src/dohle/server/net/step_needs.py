"""What work in steps (``core.steps``) needs besides time: memory, and a thread.

Memory for such work is limited: whoever gets none waits for those that have it. Nobody has two of a
kind, and whoever has room for output does not wait for input, so some can always go on.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future, Lock
from collections import deque
from collections.abc import Callable
from functools import partial

from dohle.core.host import Host, ThreadPool
from dohle.core.steps import Blocking, Room

#: For what was decompressed whole. What is larger has to wait until it has all of it.
_INPUT_BYTES = 32 * 1024 * 1024
#: For compressors.
_OUTPUT_BYTES = 8 * 1024 * 1024


class StepNeeds:
    """What all work on one loop shares."""

    def __init__(self, loop: AbstractEventLoop, host: Host) -> None:
        self._host = host
        #: The threads for work of one kind, by its name; all other work shares the host's.
        self.threads: dict[str, ThreadPool] = {}
        self._thread = Lock()
        self._input = _Memory(loop, _INPUT_BYTES)
        self._output = _Memory(loop, _OUTPUT_BYTES)

    async def meet(self, step: Room | Callable[[], object]) -> object:
        """Give a step what it needs to go on; return what is to be sent in."""
        if isinstance(step, Room):
            memory = self._output if step.is_for_output else self._input
            await memory.take(step)
            return None
        if isinstance(step, Blocking):
            own = self.threads.get(step.threads)
            return await (self._host.run_in_thread(step) if own is None else own.run(step))
        # One at a time: threads take turns at the GIL with the loop.
        async with self._thread:
            return await self._host.run_in_thread(step)


class _Memory:
    """So many bytes, for whoever comes first."""

    def __init__(self, loop: AbstractEventLoop, size: int) -> None:
        self._loop = loop
        self._size = self._left = size
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    async def take(self, room: Room) -> None:
        """Return when so much is free, and take it until it is released."""
        size = min(room.size, self._size)
        if self._waiting or size > self._left:
            future: Future[None] = self._loop.create_future()
            self._waiting.append((size, future))
            try:
                await future
            except CancelledError:
                if not future.cancelled():
                    self._give_back(size)
                raise
        else:
            self._left -= size
        room.on_release = partial(self._give_back, size)

    def _give_back(self, size: int) -> None:
        self._left += size
        while self._waiting and self._waiting[0][0] <= self._left:
            wanted, future = self._waiting.popleft()
            if not future.done():
                self._left -= wanted
                future.set_result(None)
