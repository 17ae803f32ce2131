"""Long work on the loop, in slices, so that nobody else has to wait for it.

There is one way to do long work, which comes in two forms. What only looks and computes is in steps
(``core.steps``): :func:`begin` takes as many of them as fit into a slice, which is all that most
work needs, and what is left is finished in later turns of the loop. A coroutine that changes
something gives way wherever others may go first (:class:`Slices`), and has parts of it in steps.

:func:`in_slices` is for work that is of no use any more when its client has gone: it is given up
then. (What a request changes is carried out to its end: see ``Dispatcher.forget``.)
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from dohle.core.steps import Step, Steps
from dohle.server.net.turns import SLICE_S, Turns

T = TypeVar("T")


class Slices:
    """One piece of work, in slices. The first begins here and now."""

    __slots__ = ("_begun", "_holds_collector", "_turns", "_used_s")

    def __init__(self, turns: Turns, used_s: float = 0.0) -> None:
        self._turns = turns
        self._begun = turns.time()
        self._used_s = used_s
        self._holds_collector = False

    def __del__(self) -> None:
        self._release_collector()

    def hold_collector(self) -> None:
        """Let there be no full collection before the work is done, or waits for something."""
        if not self._holds_collector:
            self._holds_collector = True
            self._turns.collector.hold()

    def _release_collector(self) -> None:
        if self._holds_collector:
            self._holds_collector = False
            self._turns.collector.release()

    @property
    def used_s(self) -> float:
        """How long the work has taken so far."""
        return self._used_s + self._turns.time() - self._begun

    @property
    def is_over(self) -> bool:
        """Tell whether the slice has come to its end."""
        return self._turns.time() - self._begun >= SLICE_S or self._turns.is_crowded

    async def give_way(self) -> None:
        """Let others have their turn if the slice has come to its end."""
        turns = self._turns
        if turns.time() - self._begun >= SLICE_S or turns.is_crowded:
            await self.wait()

    async def wait(self) -> None:
        """Let others have their turn in any case."""
        self._end()
        await self._wait_for_turn()

    async def wait_for(self, future: Awaitable[T]) -> T:
        """Wait for something other than a turn; meanwhile the work uses and holds up nothing."""
        self._end()
        self._release_collector()
        try:
            return await future
        finally:
            self._begun = self._turns.time()

    async def run(self, steps: Steps[T]) -> T:
        """Take all steps, from this slice on."""
        try:
            step = _advance(steps, None, self._turns.time, self._begun + SLICE_S)
        except StopIteration as ended:
            value: T = ended.value
            return value
        self._end()
        return await self.finish(steps, step)

    async def finish(self, steps: Steps[T], step: Step) -> T:
        """Take the steps that are left, from the next turn on."""
        turns = self._turns
        try:
            while True:
                result: object = None
                if step is not None:
                    self._release_collector()
                    result = await turns.needs.meet(step)
                # Many may have waited for the same: each goes on when it is its turn.
                await self._wait_for_turn()
                step = _advance(steps, result, turns.time, self._begun + SLICE_S)
                self._end()
        except StopIteration as ended:
            value: T = ended.value
            return value
        finally:
            steps.close()

    def _end(self) -> None:
        """Take note of how long the slice was."""
        took = self._turns.time() - self._begun
        self._used_s += took
        self._turns.spend(took)

    async def _wait_for_turn(self) -> None:
        self.hold_collector()
        await self._turns.turn(self._used_s)
        self._begun = self._turns.time()


def _advance(steps: Steps[T], result: object, time: Callable[[], float], end: float) -> Step:
    """Take steps until some time, or until one needs something; StopIteration ends them."""
    step = steps.send(result)
    while step is None and time() < end:
        step = next(steps)
    return step


class Begun(Generic[T]):
    """Work of which the first slice is done, and the step that it has come to."""

    __slots__ = ("_step", "_steps", "slices")

    def __init__(self, slices: Slices, steps: Steps[T], step: Step) -> None:
        self.slices = slices
        self._steps = steps
        self._step = step

    async def finish(self) -> T:
        """Do what is left."""
        return await self.slices.finish(self._steps, self._step)


def begin(turns: Turns, steps: Steps[T]) -> T | Begun[T]:
    """Do what fits into one slice: return the result, or what is left to be finished.

    The slice is short while other requests wait.

    The caller has the loop, and says for how long (``Turns.spend``).
    """
    time = turns.time
    begun = time()
    try:
        # Most work is done after the first step.
        step = steps.send(None)
        end = begun + turns.first_slice_s
        while step is None and time() < end:
            step = next(steps)
    except StopIteration as ended:
        result: T = ended.value
        return result
    slices = Slices(turns, time() - begun)
    slices.hold_collector()
    return Begun(slices, steps, step)


def in_slices(turns: Turns, steps: Steps[T] | Steps[T | Future[T]]) -> T | Future[T]:
    """Do what fits into one slice; return the result, or a future that will have it.

    If the result is a future itself, the one returned will have its result.
    """
    begun = begin(turns, steps)
    if not isinstance(begun, Begun):
        return begun
    future: Future[T] = turns.loop.create_future()
    work_for(turns.loop, future, _finish(begun))
    return future


async def _finish(begun: Begun[T | Future[T]]) -> T:
    return await result_of(await begun.finish())


async def result_of(found: T | Future[T]) -> T:
    """Return a result, when it is there."""
    return await found if isinstance(found, Future) else found


def work_for(loop: AbstractEventLoop, future: Future[T], coroutine: Coroutine[Any, Any, T]) -> None:
    """Let a future have the result of a coroutine, which is cancelled if the future is."""
    task = loop.create_task(coroutine)

    def pass_on(ended: Task[T]) -> None:
        if future.done():
            return
        if ended.cancelled():
            future.cancel()
        elif (error := ended.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(ended.result())

    def give_up(future: Future[T]) -> None:
        if future.cancelled():
            task.cancel()

    task.add_done_callback(pass_on)
    future.add_done_callback(give_up)
