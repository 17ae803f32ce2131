"""Sharing the loop: slices, crowded turns, and who goes first."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

from dohle.server.host import SystemNodeHost
from dohle.server.net.collector import Collector
from dohle.server.net.slices import Slices
from dohle.server.net.turns import (
    FREE_SHARE,
    NEW_USED_S,
    SLICE_S,
    STAND_BACK,
    TURN_S,
    Turns,
    Usage,
)
from tests.server.net.stopped_loop import StoppedLoop, run, turn_of_the_loop


def test_a_turn_is_crowded_from_some_milliseconds_on_and_the_next_is_not() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        seen = []
        for _ in range(2):
            turns.spend(TURN_S / 2)
            seen.append(turns.is_crowded)
        await turn_of_the_loop()
        seen.append(turns.is_crowded)
        turns.spend(TURN_S / 2)
        seen.append(turns.is_crowded)
        assert seen == [False, True, False, False]

    run(scenario)


def test_who_has_used_the_loop_stands_back_for_who_has_not() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        order: list[str] = []
        turns.wait(0.010, lambda: order.append("heavy"))
        turns.wait(0.0, lambda: order.append("first"))
        turns.wait(0.0, lambda: order.append("second"))
        await turn_of_the_loop()
        assert order == ["first", "second", "heavy"]
        assert not len(turns)

    run(scenario)


def test_nobody_stands_back_for_ever() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        order: list[str] = []
        turns.wait(0.010, lambda: order.append("heavy"))
        loop.work(STAND_BACK * 0.010 + 0.001)
        turns.wait(0.0, lambda: order.append("light, but later"))
        await turn_of_the_loop()
        assert order == ["heavy", "light, but later"]

    run(scenario)


def test_one_turn_of_the_loop_serves_the_queue_for_some_milliseconds_only() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        done: list[int] = []

        def long(number: int) -> None:
            loop.work(TURN_S * 0.6)
            done.append(number)

        for number in range(5):
            turns.wait(0.0, partial(long, number))
        counts = []
        for _ in range(3):
            await turn_of_the_loop()
            counts.append(len(done))
        assert counts == [2, 4, 5]

    run(scenario)


def test_each_turn_of_the_loop_serves_requests_first_and_then_one_slice() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        order: list[str] = []

        def note(name: str, _: asyncio.Future[None]) -> None:
            order.append(name)

        for name in ("slice 1", "slice 2"):
            turns.turn(0.0).add_done_callback(partial(note, name))
        # Whatever it has used: long work is what others wait for.
        turns.wait(NEW_USED_S, lambda: order.append("request"))
        for _ in range(2):
            await turn_of_the_loop()
            order.append("|")
        await turn_of_the_loop()
        assert order == ["request", "|", "slice 1", "|", "slice 2"]

    run(scenario)


def test_what_fails_in_its_turn_does_not_stop_the_others() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        done: list[str] = []

        def fail() -> None:
            raise RuntimeError("nobody thought of this")

        turns.wait(0.0, fail)
        turns.wait(0.0, lambda: done.append("the other"))
        await turn_of_the_loop()
        assert done == ["the other"]

    run(scenario)


def test_slices_of_several_tasks_have_a_turn_of_the_loop_each() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        trace: list[str] = []

        async def work(name: str) -> None:
            slices = Slices(turns)
            for _ in range(2):
                loop.work(SLICE_S)
                trace.append(name)
                await slices.give_way()

        async def watch() -> None:
            for _ in range(12):
                trace.append("|")
                await turn_of_the_loop()

        await asyncio.gather(watch(), work("a"), work("b"), work("c"))
        held = [len(each) for each in "".join(trace).split("|")]
        assert sum(held) == 6
        # All begin at the same time; from then on, no turn of the loop has two slices.
        assert max(held[2:]) == 1

    run(scenario)


def test_work_that_is_short_does_not_give_way() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        others: list[str] = []
        loop.call_soon(lambda: others.append("others had a turn"))
        slices = Slices(turns)
        for _ in range(100):
            loop.work(SLICE_S / 200)
            await slices.give_way()
        assert not others

    run(scenario)


def test_a_task_that_is_cancelled_while_it_waits_leaves_its_turn_to_the_next() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        async def wait() -> None:
            await turns.turn(0.0)

        gone, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
        await turn_of_the_loop()
        gone.cancel()
        await stays
        assert gone.cancelled() or await asyncio.wait([gone])

    run(scenario)


def test_a_full_queue_is_told_and_those_that_wait_for_room_are_called() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        limited = Turns(loop, SystemNodeHost(), 2)
        called: list[str] = []
        limited.wait(0.0, lambda: loop.work(TURN_S))
        states = [limited.is_full]
        limited.wait(0.0, lambda: loop.work(TURN_S))
        states.append(limited.is_full)
        limited.call_when_not_full(lambda: called.append("there is room"))
        assert not called
        await turn_of_the_loop()
        assert called == ["there is room"]
        assert [*states, limited.is_full] == [False, True, False]

    run(scenario)


def test_what_waits_for_something_else_uses_nothing_and_holds_up_no_collection() -> None:
    async def scenario(loop: StoppedLoop, _: Turns) -> None:
        # One of its own: work that other tests left unfinished may hold up that of the process.
        collector = Collector()
        turns = Turns(loop, SystemNodeHost(), collector=collector)
        slices = Slices(turns)
        await slices.wait()
        held = [collector.is_held]
        waited_for: asyncio.Future[str] = loop.create_future()
        waiting = asyncio.ensure_future(slices.wait_for(waited_for))
        await turn_of_the_loop()
        held.append(collector.is_held)
        assert held == [True, False]
        loop.work(60.0)
        waited_for.set_result("done")
        assert await waiting == "done"
        # It has its slice before it, and goes before whoever has used the loop.
        assert not slices.is_over
        order: list[str] = []
        turns.turn(0.001).add_done_callback(lambda _: order.append("other"))
        await slices.wait()
        assert order == []

    run(scenario)


def test_only_as_many_are_let_in_as_there_is_room_for_and_all_in_the_end() -> None:
    """Those for whom there is none would leave again, each time, and cost the loop."""

    async def scenario(loop: StoppedLoop, unlimited: Turns) -> None:
        room, many = 4, 30
        turns = Turns(loop, SystemNodeHost(), queued_max=room)
        let_in: list[int] = []
        for _ in range(room):
            turns.wait(0.0, partial(loop.work, TURN_S))
        assert turns.is_full
        for number in range(many):
            turns.call_when_not_full(partial(let_in.append, number))
        seen = [0]
        while len(let_in) < many:
            await turn_of_the_loop()
            seen.append(len(let_in))
        assert let_in == list(range(many))
        assert all(after - before <= room for before, after in pairwise(seen))
        # One was served by then.
        assert seen[1] == 1

    run(scenario)


class BusyMachine(SystemNodeHost):
    """A machine on which the loop's thread runs as long as it is told."""

    ran_s = 0.0

    def thread_cpu_s(self) -> float:
        return self.ran_s


def test_a_wait_for_the_processor_is_not_counted_as_use_of_the_loop() -> None:
    """Another process had it: a client that asked for little does not stand back for that."""
    host = BusyMachine()
    loop = StoppedLoop()

    async def scenario() -> None:
        turns = Turns(loop, host)
        light, heavy = Usage(loop.now), Usage(loop.now)
        loop.work(NEW_USED_S / FREE_SHARE)

        def serve(usage: Usage, cpu_s: float, waited_s: float) -> None:
            begun = loop.now
            host.ran_s += cpu_s
            loop.work(cpu_s + waited_s)
            usage.add(turns.used_s(begun, loop.now), loop.now)
            turns.spend(loop.now - begun)

        serve(light, 0.0001, 0.040)
        serve(heavy, 0.003, 0.0)
        assert light.of_late(loop.now) < 0.0002 < 0.0029 < heavy.of_late(loop.now)
        await turn_of_the_loop()
        # What the loop does besides is not the next one's either.
        host.ran_s += 0.5
        turns.spend(0.001)
        await turn_of_the_loop()
        serve(light, 0.0001, 0.040)
        assert light.of_late(loop.now) < 0.0003

    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
