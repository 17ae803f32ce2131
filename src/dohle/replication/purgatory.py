"""Requests that wait, such as a long poll for records.

A request is delayed with the keys it watches (partitions, mostly) and a deadline. Whoever moves
something forward asks who is :meth:`~Purgatory.watching` it, and looks whether that is enough for
them; those that have enough are taken out by :meth:`~Purgatory.cancel`, as are those whose
deadline has come. That takes a request out of everything: it is done once, and nothing of it is
left behind. Until then nothing is moved, however often it is looked at and however many keys
it has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
P = TypeVar("P")

_STALE_MIN = 64


class Delayed(Generic[K, R]):
    """A request while it waits."""

    __slots__ = ("deadline_ms", "is_waiting", "keys", "request")

    def __init__(self, request: R, keys: tuple[K, ...], deadline_ms: int) -> None:
        self.request = request
        self.keys = keys
        self.deadline_ms = deadline_ms
        self.is_waiting = True


class Purgatory(Generic[K, R]):
    """The delayed requests of one kind."""

    def __init__(self) -> None:
        # Dicts serve as sets that keep their order: who came first is looked at first.
        self._watchers: dict[K, dict[Delayed[K, R], None]] = {}
        self._deadlines: list[tuple[int, int, Delayed[K, R]]] = []
        self._numbers = count()
        #: How many wait.
        self.count = 0

    @property
    def watched_count(self) -> int:
        """How many keys somebody watches."""
        return len(self._watchers)

    def next_deadline_ms(self) -> int | None:
        """Tell when the next request has waited long enough."""
        self._drop_stale_deadlines()
        return self._deadlines[0][0] if self._deadlines else None

    def watch(self, request: R, keys: Iterable[K], deadline_ms: int) -> Delayed[K, R]:
        """Let a request wait for what happens to its keys."""
        # (To call the class with its types takes three times as long.)
        delayed: Delayed[K, R] = Delayed(request, tuple(dict.fromkeys(keys)), deadline_ms)
        watchers = self._watchers
        for key in delayed.keys:
            found = watchers.get(key)
            if found is None:
                watchers[key] = {delayed: None}
            else:
                found[delayed] = None
        self.count += 1
        heappush(self._deadlines, (deadline_ms, next(self._numbers), delayed))
        return delayed

    def watching(self, key: K) -> list[Delayed[K, R]]:
        """Return the requests that watch a key, the longest waiting first."""
        watchers = self._watchers.get(key)
        return [] if watchers is None else list(watchers)

    def expire(self, now_ms: int) -> list[Delayed[K, R]]:
        """Take out the requests whose deadline has come, the earliest first."""
        due: list[Delayed[K, R]] = []
        self._drop_stale_deadlines()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            delayed = self._deadlines[0][2]
            due.append(delayed)
            self._take_out(delayed)
            self._drop_stale_deadlines()
        return due

    def cancel(self, delayed: Delayed[K, R]) -> bool:
        """Take out a request; False if it waits no longer."""
        if not delayed.is_waiting:
            return False
        self._take_out(delayed)
        return True

    def _take_out(self, delayed: Delayed[K, R]) -> None:
        delayed.is_waiting = False
        self.count -= 1
        _discard(self._watchers, delayed.keys, delayed)
        if len(self._deadlines) > 2 * self.count + _STALE_MIN:
            self._deadlines = [entry for entry in self._deadlines if entry[2].is_waiting]
            heapify(self._deadlines)

    def _drop_stale_deadlines(self) -> None:
        """Let the first deadline be one that still counts."""
        while self._deadlines and not self._deadlines[0][2].is_waiting:
            heappop(self._deadlines)


def _discard(sets: dict[K, dict[P, None]], keys: Iterable[K], delayed: P) -> None:
    """Remove a request from the sets under its keys, and sets that are then empty."""
    for key in keys:
        found = sets[key]
        del found[delayed]
        if not found:
            del sets[key]
