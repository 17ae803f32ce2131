"""Connections that have not authenticated yet: few are allowed, and not for long.

Kafka has no limit but that of idle connections. If the room is full, whoever has been there for
long has to go; if nobody has (all come back after a failure), the newcomer has to come again.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Hashable

#: After this time a connection has to make room for others.
_LONG_S = 2.0


class WaitingRoom:
    """Those who have not authenticated, in the order in which they came."""

    def __init__(self, loop: AbstractEventLoop, seconds_max: float, count_max: int) -> None:
        self._loop = loop
        self._seconds_max = seconds_max
        self._count_max = count_max
        #: Since when they are here, and how to turn them out, by the reason for it.
        self._guests: dict[Hashable, tuple[float, Callable[[str], None]]] = {}
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._guests)

    def has_room(self) -> bool:
        """Tell whether one more may come in; one that has been here for long makes room."""
        if len(self._guests) < self._count_max:
            return True
        guest, (since, turn_out) = next(iter(self._guests.items()))
        if self._loop.time() - since < _LONG_S:
            return False
        del self._guests[guest]
        turn_out("there were too many that had not logged in")
        return True

    def enter(self, guest: Hashable, turn_out: Callable[[str], None]) -> None:
        """Let somebody wait; ``turn_out`` is called with the reason if it takes too long."""
        self._guests[guest] = (self._loop.time(), turn_out)
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds_max, self._expire)

    def leave(self, guest: Hashable) -> None:
        """Let somebody go, if they are here."""
        self._guests.pop(guest, None)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for guest, (since, turn_out) in list(self._guests.items()):
            due = since + self._seconds_max
            if due > now:
                self._timer = self._loop.call_at(due, self._expire)
                break
            self._guests.pop(guest, None)
            turn_out(f"it had not logged in within {self._seconds_max:g} s")

    def close(self) -> None:
        """Turn everybody out."""
        if self._timer is not None:
            self._timer.cancel()
        guests, self._guests = self._guests, {}
        for _, turn_out in guests.values():
            turn_out("the listener is closed")
