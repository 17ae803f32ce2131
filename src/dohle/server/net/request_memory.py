"""How many bytes of large requests all connections together may be receiving.

A request takes its announced size out of the pool before it is received, and gives it back when it
is handled. As in Kafka, one is let in as long as there is anything left: so the largest possible
request always gets in, and the pool can be overdrawn by one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """The pool; those that find nothing left are called when there is."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def left(self) -> int:
        """How many bytes are left; below 0 if the last request overdrew the pool."""
        return self._left

    def take(self, size: int, when_given: Callable[[], None]) -> bool:
        """Take out the size of a request; if nothing is left, call back when there is."""
        if self._left <= 0:
            self._waiting.append(when_given)
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """Give back what was taken out, and let those in that have waited for it."""
        self._left += size
        for _ in range(len(self._waiting)):
            if self._left <= 0:
                break
            self._waiting.popleft()()
