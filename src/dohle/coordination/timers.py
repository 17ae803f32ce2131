"""Deadlines that are moved all the time and seldom come: one for each member's session, say.

Moving a deadline further away costs one dictionary write; its place in the heap is mended when its
old time has come.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_STALE_MIN = 64


class Timers(Generic[K]):
    """Deadlines by their key, on the monotonic clock."""

    __slots__ = ("_deadlines", "_heap", "_numbers", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        # The earliest time at which each key is in the heap; older entries of it are stale.
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    @property
    def queued_count(self) -> int:
        """How many entries the heap has, stale ones among them."""
        return len(self._heap)

    def set(self, key: K, deadline_ms: int) -> None:
        """Set a deadline, or move it."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def deadline_ms(self, key: K) -> int | None:
        """Return a key's deadline."""
        return self._deadlines.get(key)

    def cancel(self, key: K) -> bool:
        """Take a deadline away; False if there is none."""
        return self._deadlines.pop(key, None) is not None

    def next_deadline_ms(self) -> int | None:
        """Tell when the next deadline comes."""
        self._mend()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Take out the earliest key whose deadline has come."""
        self._mend()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._queued[key]
        del self._deadlines[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_MIN:
            self._rebuild()
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, next(self._numbers), key))

    def _rebuild(self) -> None:
        """Let go of what is stale."""
        self._heap[:] = [(at, next(self._numbers), key) for key, at in self._deadlines.items()]
        heapify(self._heap)
        self._queued = dict(self._deadlines)

    def _mend(self) -> None:
        """Let the first entry of the heap be a deadline that counts."""
        heap = self._heap
        while heap:
            at, _, key = heap[0]
            deadline = self._deadlines.get(key)
            if self._queued.get(key) != at:
                heappop(heap)
            elif deadline is None:
                heappop(heap)
                del self._queued[key]
            elif deadline > at:
                heappop(heap)
                self._push(key, deadline)
            else:
                return
