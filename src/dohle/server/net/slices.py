"""Giving the loop back in between, in work that takes long and must be done on it."""

from __future__ import annotations

from asyncio import AbstractEventLoop, sleep

#: For how long such work may keep the loop to itself.
_SLICE_S = 0.003


class Slices:
    """One piece of work, in slices. The first begins here and now."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._end = loop.time() + _SLICE_S

    async def give_way(self) -> None:
        """Let others have their turn if the slice has come to its end."""
        if self._loop.time() > self._end:
            await sleep(0)
            self._end = self._loop.time() + _SLICE_S
