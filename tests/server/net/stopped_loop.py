"""A loop whose time passes when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from dohle.server.host import SystemNodeHost
from dohle.server.net.turns import Turns


class StoppedLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes when it is told to."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


def run(scenario: Callable[[StoppedLoop, Turns], Coroutine[Any, Any, None]]) -> None:
    loop = StoppedLoop()
    try:
        loop.run_until_complete(scenario(loop, Turns(loop, SystemNodeHost())))
    finally:
        loop.close()


async def turn_of_the_loop() -> None:
    await asyncio.sleep(0)
