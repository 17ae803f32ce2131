"""What work in steps needs besides time."""

from __future__ import annotations

import asyncio

from dohle.core.steps import Room
from dohle.server.host import SystemNodeHost
from dohle.server.net.step_needs import StepNeeds

MB = 1024 * 1024


def test_what_needs_more_memory_than_there_is_has_to_have_all_of_it() -> None:
    async def scenario() -> None:
        needs = StepNeeds(asyncio.get_running_loop(), SystemNodeHost())
        first, large, last = Room(20 * MB), Room(200 * MB), Room(1 * MB)
        await needs.meet(first)
        waiting = [asyncio.ensure_future(needs.meet(room)) for room in (large, last)]
        await asyncio.sleep(0)
        assert [one.done() for one in waiting] == [False, False]
        first.release()
        await waiting[0]
        assert not waiting[1].done()
        large.release()
        await waiting[1]

    asyncio.run(scenario())
