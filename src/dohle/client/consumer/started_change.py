"""A change that takes effect whether or not it is awaited.

``consumer.subscribe(...)`` without ``await`` is an easy slip, and a coroutine that nobody awaits
does nothing at all. So the change is begun at once; who awaits it is told what became of it, and if
nobody does, the next call that needs it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


class StartedChange:
    """A change under way; an awaitable."""

    def __init__(self, change: Coroutine[Any, Any, None], *, before: StartedChange | None) -> None:
        """Make a change after another one, whatever became of that."""
        self._task = asyncio.ensure_future(_after(before, change))
        self._is_attended = False

    def __await__(self) -> Generator[Any, None, None]:
        self._is_attended = True
        return (yield from self._task.__await__())

    async def attend(self) -> None:
        """Wait for it; raise what it raised unless somebody has been told."""
        if not self._is_attended:
            await self
        elif not self._task.done():
            await asyncio.wait([self._task])

    async def end(self) -> None:
        """Give it up, and do not raise what it raised."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()


async def _after(before: StartedChange | None, change: Coroutine[Any, Any, None]) -> None:
    if before is not None:
        await asyncio.wait([before._task])
    await change
