"""Work in steps, for as long as a slice allows: the rest goes on in later turns of the loop."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import partial

import pytest

from dohle.core.steps import Steps
from dohle.server.net.slices import in_slices
from dohle.server.net.turns import SLICE_S, Turns
from tests.server.net.stopped_loop import StoppedLoop, run, turn_of_the_loop


class Work:
    """So many steps, two of which fill a slice."""

    def __init__(self, loop: StoppedLoop, count: int) -> None:
        self._loop, self._count = loop, count
        self.made = 0
        self.is_closed = False

    def steps(
        self, end: Callable[[], str | Future[str]] = lambda: "done"
    ) -> Steps[str | Future[str]]:
        try:
            for _ in range(self._count):
                self._loop.work(SLICE_S * 0.6)
                self.made += 1
                yield None
            return end()
        finally:
            self.is_closed = True


def test_what_is_short_is_done_at_once() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        assert in_slices(turns, Work(loop, 1).steps()) == "done"

    run(scenario)


def test_what_is_long_goes_on_in_later_turns() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        work = Work(loop, 5)
        future = in_slices(turns, work.steps())
        assert isinstance(future, Future)
        seen = [work.made]
        while not future.done():
            await turn_of_the_loop()
            seen.append(work.made)
        assert list(dict.fromkeys(seen)) == [2, 4, 5]
        assert future.result() == "done"

    run(scenario)


def test_while_other_requests_wait_the_first_slice_is_short() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        works = [Work(loop, 3), Work(loop, 3)]
        made: list[int] = []

        def begin(work: Work) -> None:
            in_slices(turns, work.steps())
            made.append(work.made)

        for work in works:
            turns.wait(0.0, partial(begin, work))
        await turn_of_the_loop()
        assert made == [1, 2]

    run(scenario)


def test_a_result_that_is_a_future_is_waited_for() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        inner: Future[str] = loop.create_future()
        future = in_slices(turns, Work(loop, 3).steps(lambda: inner))
        assert isinstance(future, Future)
        await turn_of_the_loop()
        assert not future.done()
        inner.set_result("late")
        assert await future == "late"

    run(scenario)


def test_what_fails_in_a_later_turn_fails_the_future() -> None:
    def fail() -> str:
        raise RuntimeError("nobody thought of this")

    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        future = in_slices(turns, Work(loop, 3).steps(fail))
        assert isinstance(future, Future)
        with pytest.raises(RuntimeError, match="nobody"):
            await future

    run(scenario)


def test_a_failure_of_what_is_waited_for_is_passed_on() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        inner: Future[str] = loop.create_future()
        future = in_slices(turns, Work(loop, 3).steps(lambda: inner))
        assert isinstance(future, Future)
        await turn_of_the_loop()
        inner.set_exception(RuntimeError("gone"))
        with pytest.raises(RuntimeError, match="gone"):
            await future

    run(scenario)


def test_no_step_is_made_for_a_client_that_has_gone() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        work = Work(loop, 9)
        future = in_slices(turns, work.steps())
        assert isinstance(future, Future)
        future.cancel()
        for _ in range(10):
            await turn_of_the_loop()
        assert work.made == 2
        assert work.is_closed

    run(scenario)


def test_what_is_waited_for_is_cancelled_with_the_client() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        inner: Future[str] = loop.create_future()
        future = in_slices(turns, Work(loop, 3).steps(lambda: inner))
        assert isinstance(future, Future)
        for _ in range(10):
            await turn_of_the_loop()
        future.cancel()
        for _ in range(10):
            await turn_of_the_loop()
        assert inner.cancelled()

    run(scenario)
