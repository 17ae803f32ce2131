"""Requests that wait: long polls for records, writes for their replicas.

A request is parked with the keys it watches (partitions, mostly), how much it still needs and a
deadline. Whoever moves something forward says so with :meth:`Waiting.progress` and gets back those
that may now have enough. Giving a request back takes it out of everything, so each is handed out
once and nothing of it is left behind; one that finds that it must still wait is parked again.

Whether a request really has what it waits for is not decided here: amounts are a hint that spares
looking at requests that cannot have it yet.
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


class Parked(Generic[K, R]):
    """A request while it waits."""

    __slots__ = ("deadline_ms", "is_waiting", "keys", "missing", "owner", "request")

    def __init__(
        self,
        request: R,
        keys: tuple[K, ...],
        deadline_ms: int,
        missing: int,
        owner: Hashable | None,
    ) -> None:
        self.request = request
        self.keys = keys
        self.deadline_ms = deadline_ms
        #: What has to come before it is worth looking at the request again.
        self.missing = missing
        self.owner = owner
        self.is_waiting = True


class Waiting(Generic[K, R]):
    """The parked requests of one kind."""

    def __init__(self) -> None:
        # Dicts serve as sets that keep their order: who came first is looked at first.
        self._watchers: dict[K, dict[Parked[K, R], None]] = {}
        self._by_owner: dict[Hashable, dict[Parked[K, R], None]] = {}
        self._deadlines: list[tuple[int, int, Parked[K, R]]] = []
        self._numbers = count()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def watched_count(self) -> int:
        """How many keys somebody watches."""
        return len(self._watchers)

    def next_deadline_ms(self) -> int | None:
        """Tell when the next request has waited long enough."""
        self._drop_stale_deadlines()
        return self._deadlines[0][0] if self._deadlines else None

    def park(
        self,
        request: R,
        keys: Iterable[K],
        deadline_ms: int,
        *,
        needed: int = 1,
        owner: Hashable | None = None,
    ) -> Parked[K, R]:
        """Let a request wait for ``needed`` of whatever the keys' progress is counted in."""
        parked = Parked[K, R](request, tuple(dict.fromkeys(keys)), deadline_ms, needed, owner)
        watchers = self._watchers
        for key in parked.keys:
            found = watchers.get(key)
            if found is None:
                watchers[key] = {parked: None}
            else:
                found[parked] = None
        if owner is not None:
            self._by_owner.setdefault(owner, {})[parked] = None
        self._count += 1
        heappush(self._deadlines, (deadline_ms, next(self._numbers), parked))
        return parked

    def is_watched(self, key: K) -> bool:
        """Tell whether progress of the key interests anyone."""
        return key in self._watchers

    def progress(self, key: K, amount: int | None = None) -> list[Parked[K, R]]:
        """Take out the requests that may have enough now, the longest waiting first.

        Without an amount they are all those that watch the key: its leader has changed, or it is
        gone.
        """
        watchers = self._watchers.get(key)
        if watchers is None:
            return []
        due: list[Parked[K, R]] = []
        for parked in watchers:
            if amount is not None:
                parked.missing -= amount
                if parked.missing > 0:
                    continue
            due.append(parked)
        for parked in due:
            self._take_out(parked)
        return due

    def expire(self, now_ms: int) -> list[Parked[K, R]]:
        """Take out the requests whose deadline has come, the earliest first."""
        due: list[Parked[K, R]] = []
        self._drop_stale_deadlines()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            parked = self._deadlines[0][2]
            due.append(parked)
            self._take_out(parked)
            self._drop_stale_deadlines()
        return due

    def cancel(self, parked: Parked[K, R]) -> bool:
        """Take out a request; False if it waits no longer."""
        if not parked.is_waiting:
            return False
        self._take_out(parked)
        return True

    def cancel_owner(self, owner: Hashable) -> list[Parked[K, R]]:
        """Take out all requests of an owner: a connection that was closed."""
        due = list(self._by_owner.get(owner, ()))
        for parked in due:
            self._take_out(parked)
        return due

    def _take_out(self, parked: Parked[K, R]) -> None:
        parked.is_waiting = False
        self._count -= 1
        _discard(self._watchers, parked.keys, parked)
        if parked.owner is not None:
            _discard(self._by_owner, (parked.owner,), parked)
        if len(self._deadlines) > 2 * self._count + _STALE_MIN:
            self._deadlines = [entry for entry in self._deadlines if entry[2].is_waiting]
            heapify(self._deadlines)

    def _drop_stale_deadlines(self) -> None:
        """Let the first deadline be one that still counts."""
        while self._deadlines and not self._deadlines[0][2].is_waiting:
            heappop(self._deadlines)


def _discard(sets: dict[K, dict[P, None]], keys: Iterable[K], parked: P) -> None:
    """Remove a request from the sets under its keys, and sets that are then empty."""
    for key in keys:
        found = sets[key]
        del found[parked]
        if not found:
            del sets[key]
