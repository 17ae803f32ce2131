"""Letting other tasks run in between, in long work that must be done on the event loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop, sleep

#: How long such work may keep the loop to itself.
_SLICE_S = 0.003


class Slices:
    """A long piece of work, cut into slices of time. The first slice begins at once."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._end = loop.time() + _SLICE_S

    async def give_way(self) -> None:
        """Let other tasks run if the slice is used up."""
        if self._loop.time() > self._end:
            await sleep(0)
            self._end = self._loop.time() + _SLICE_S
