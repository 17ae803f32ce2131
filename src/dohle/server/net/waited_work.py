"""Work that is of no use any more when its client has gone: it is given up then.

(What a request changes is carried out to its end, whoever waits for it: see ``Dispatcher.forget``.)
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Task
from collections.abc import Coroutine
from typing import Any, TypeVar

from dohle.core.steps import Steps
from dohle.server.net.long_work import Begun, LongWork

T = TypeVar("T")


def in_slices(
    loop: AbstractEventLoop, long_work: LongWork, steps: Steps[T] | Steps[T | Future[T]]
) -> T | Future[T]:
    """Take the first slice of some work; return its result, or a future that will have it.

    If the result is a future itself, the one returned will have its result.
    """
    begun = long_work.begin(steps)
    if not isinstance(begun, Begun):
        return begun
    future: Future[T] = loop.create_future()
    work_for(loop, future, _finish(long_work, begun))
    return future


async def _finish(long_work: LongWork, begun: Begun[T | Future[T]]) -> T:
    return await result_of(await long_work.finish(begun))


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
