"""A budget of bytes with a fair queue: first come, first served, however little others ask for."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class BufferMemory:
    """The bytes of unsent and unacknowledged records."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Whether somebody is waiting for space."""
        return bool(self._line)

    def try_take(self, size: int) -> bool:
        """Take space if it is available and nobody is waiting."""
        if self._line or self.used + size > self.limit:
            return False
        self.used += size
        return True

    async def take(self, size: int) -> None:
        """Take space, waiting for it in line; ValueError for more than the limit."""
        if size > self.limit:
            raise ValueError(f"{size} bytes never fit into {self.limit}")
        if self.try_take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._line.remove((size, turn))
                self._advance()
            else:
                self.give(size)  # space became free at the same moment
            raise

    def give(self, size: int) -> None:
        """Give space back."""
        self.used -= size
        assert self.used >= 0, "more was given back than was taken"
        self._advance()

    def _advance(self) -> None:
        while self._line and self.used + self._line[0][0] <= self.limit:
            size, turn = self._line.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(None)
