"""Requests that may take long, done in steps: as many in a row as a slice of the loop allows.

Most are short, and done within the slice of the connection that has received them: whoever asks
gets the result itself. What takes longer goes on in later turns of the loop, and its result is
passed on by a future. If that is cancelled, since the client has gone, no further step is made.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Generic, TypeVar

from dohle.core.steps import Steps
from dohle.server.net.turns import SLICE_S, Turns

T = TypeVar("T")


class _Unfinished:
    """What a slice returns that was too short for the work."""


_UNFINISHED = _Unfinished()


def in_slices(
    turns: Turns, new_future: Callable[[], Future[T]], steps: Steps[T | Future[T]]
) -> T | Future[T]:
    """Do the first slice of some work now; return its result, or a future that will have it.

    If the result is a future itself, the one returned will have its result.
    """
    begun = turns.time()
    done = _slice(turns, steps)
    if not isinstance(done, _Unfinished):
        return done
    # The time of this slice is noted by the connection, within which it was.
    work = SlicedWork(turns, steps, new_future(), used_s=turns.time() - begun)
    work.wait()
    return work.future


def _slice(turns: Turns, steps: Steps[T]) -> T | _Unfinished:
    end = turns.time() + SLICE_S
    try:
        while True:
            next(steps)
            if turns.time() >= end:
                return _UNFINISHED
    except StopIteration as stop:
        value: T = stop.value
        return value


class SlicedWork(Generic[T]):
    """Work that goes on in later turns of the loop, for whoever waits for the future."""

    __slots__ = ("_inner", "_steps", "_turns", "_used_s", "future")

    def __init__(
        self,
        turns: Turns,
        steps: Steps[T | Future[T]],
        future: Future[T],
        *,
        used_s: float = 0.0,
    ) -> None:
        self._turns = turns
        self._steps = steps
        self._used_s = used_s
        self._inner: Future[T] | None = None
        self.future = future
        future.add_done_callback(self._end)

    def wait(self) -> None:
        """Go on when it is the turn of this work."""
        self._turns.wait(self._used_s, self.go_on)

    def go_on(self) -> None:
        """Do a slice."""
        if self.future.done():
            return
        turns = self._turns
        begun = turns.time()
        try:
            done = _slice(turns, self._steps)
        except Exception as error:
            self.future.set_exception(error)
            return
        finally:
            took = turns.time() - begun
            turns.spend(took)
            self._used_s += took
        if isinstance(done, _Unfinished):
            self.wait()
        elif isinstance(done, Future):
            self._inner = done
            done.add_done_callback(self._pass_on)
        else:
            self.future.set_result(done)

    def _pass_on(self, inner: Future[T]) -> None:
        if self.future.done():
            return
        if inner.cancelled():
            self.future.cancel()
        elif (error := inner.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(inner.result())

    def _end(self, future: Future[T]) -> None:
        """Leave what is yet to be done if nobody waits for it any more."""
        if future.cancelled():
            self._steps.close()
            if self._inner is not None:
                self._inner.cancel()
