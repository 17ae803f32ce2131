"""Runs work in steps (``core.steps``) on the loop, so that nobody else has to wait for it.

The first slice is taken at once, and is all that most work needs. What is left waits for its turns
like everything that takes long (``Turns``). Compiled code that lets go of the GIL runs in a thread.
Memory for such work is limited: whoever gets none waits for those that have it. Nobody has two of a
kind, and who has room for output does not wait for input, so some can always go on.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future, Lock
from collections import deque
from functools import partial
from typing import Generic, TypeVar

from dohle.core.host import Host
from dohle.core.steps import Room, Step, Steps
from dohle.server.net.turns import SLICE_S, Slices, Turns

#: For what was decompressed whole: enough for the largest.
_INPUT_BYTES = 32 * 1024 * 1024
#: For compressors.
_OUTPUT_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class Begun(Generic[T]):
    """Work of which the first slice is done, and the step that it has come to."""

    __slots__ = ("step", "steps")

    def __init__(self, steps: Steps[T], step: Step) -> None:
        self.steps = steps
        self.step = step


class LongWork:
    """All work in steps on one loop."""

    def __init__(self, loop: AbstractEventLoop, turns: Turns, host: Host) -> None:
        self._turns = turns
        self._host = host
        self._thread = Lock()
        self._input = _Memory(loop, _INPUT_BYTES)
        self._output = _Memory(loop, _OUTPUT_BYTES)

    def begin(self, steps: Steps[T]) -> T | Begun[T]:
        """Take the first slice: return the result, or what is left to be finished."""
        time = self._turns.time
        end = time() + SLICE_S
        try:
            step = next(steps)
            while step is None and time() < end:
                step = next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        return Begun(steps, step)

    async def finish(self, begun: Begun[T]) -> T:
        """Take the other slices."""
        steps, step = begun.steps, begun.step
        await self._turns.turn(SLICE_S)
        slices = Slices(self._turns)
        try:
            while True:
                result: object = None
                if step is None:
                    await slices.give_way()
                else:
                    if isinstance(step, Room):
                        memory = self._output if step.is_for_output else self._input
                        await memory.take(step)
                    else:
                        # One at a time: threads take turns at the GIL with the loop.
                        async with self._thread:
                            result = await self._host.run_in_thread(step)
                    # Many may have waited for the same: each goes on when it is its turn.
                    await self._turns.turn(SLICE_S)
                    slices = Slices(self._turns)
                step = steps.send(result)
        except StopIteration as ended:
            value: T = ended.value
            return value
        finally:
            steps.close()

    async def run(self, steps: Steps[T]) -> T:
        """Take all slices."""
        begun = self.begin(steps)
        return await self.finish(begun) if isinstance(begun, Begun) else begun


class _Memory:
    """So many bytes, for whoever comes first."""

    def __init__(self, loop: AbstractEventLoop, size: int) -> None:
        self._loop = loop
        self._size = self._left = size
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    async def take(self, room: Room) -> None:
        """Return when so much is free, and take it until it is released."""
        size = room.size
        if size > self._size:
            raise MemoryError(f"{size} bytes of {self._size}")
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
