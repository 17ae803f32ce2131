"""Sharing the loop: long work gives way after a slice, and whoever had least of late goes first.

The loop serves everybody. A request that is short is handled as it arrives. What takes longer, be
it one large request or many small ones in a row, is done in slices of a few milliseconds; between
two of them the loop turns, and others are served. If the requests of one turn of the loop together
take too long, those that are left wait in a queue (the turn is crowded). Work leaves the queue in
the order in which it came, except that whoever has used the loop a lot must stand back: so a client
that asks for little waits for one or two slices of others, however many want more.

Time is that of the loop. In the simulator it stands still while code runs, and nothing ever waits.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

logger = logging.getLogger("dohle.server")

#: For how long one piece of work may keep the loop to itself.
SLICE_S = 0.003
#: From then on in a turn of the loop, work is put into the queue.
TURN_S = 0.005
#: The share of the loop that a client may have without standing back for others.
FREE_SHARE = 0.05
#: A new client counts as if it had used this much: those that are known to ask for little go first.
NEW_USED_S = 0.025
#: How long whoever has used the loop stands back, as a multiple of that time, and at most.
STAND_BACK = 20
STAND_BACK_S_MAX = 1.0


class Turns:
    """The queue of work that waits for its next slice."""

    def __init__(self, loop: AbstractEventLoop, queued_max: int | None = None) -> None:
        """Make a queue; from ``queued_max`` waiting in it on, it is full."""
        self.time = loop.time
        #: Whether this turn of the loop has been long enough: further work is to ``wait``.
        self.is_crowded = False
        self._loop = loop
        self._spent_s = 0.0
        # When it is due, a number that keeps the order, and whom to tell.
        self._queue: list[tuple[float, int, Callable[[], None] | Future[None]]] = []
        self._numbers = count()
        self._queued_max = queued_max
        self._on_room: deque[Callable[[], None]] = deque()
        self._is_run_due = False

    def __len__(self) -> int:
        return len(self._queue)

    def spend(self, seconds: float) -> None:
        """Take note that the loop was held for so long."""
        if seconds <= 0:
            return
        if not self._spent_s:
            # Runs in the next turn, before anything that arrives until then.
            self._loop.call_soon(self._begin_turn)
        self._spent_s += seconds
        if self._spent_s >= TURN_S:
            self.is_crowded = True

    def _begin_turn(self) -> None:
        self._spent_s = 0.0
        self.is_crowded = False

    @property
    def is_full(self) -> bool:
        """Tell whether no more requests should be received, since so many wait already."""
        return self._queued_max is not None and len(self._queue) >= self._queued_max

    def call_when_not_full(self, go_on: Callable[[], None]) -> None:
        """Call this when there is room in the queue again."""
        self._on_room.append(go_on)

    def wait(self, used_s: float, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when it is the turn of one that has used the loop for so long."""
        self._put(used_s, go_on)

    def turn(self, used_s: float) -> Future[None]:
        """Return what is done when it is the turn of one that has used the loop for so long."""
        future: Future[None] = self._loop.create_future()
        self._put(used_s, future)
        return future

    def _put(self, used_s: float, who: Callable[[], None] | Future[None]) -> None:
        due = self.time() + min(STAND_BACK * used_s, STAND_BACK_S_MAX)
        heappush(self._queue, (due, next(self._numbers), who))
        self._run_soon()

    def _run_soon(self) -> None:
        if not self._is_run_due:
            self._is_run_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Let those whose turn it is go on, until this turn of the loop has been long enough."""
        self._is_run_due = False
        queue, time = self._queue, self.time
        end = time() + TURN_S
        # Those that are queued meanwhile wait for the next turn of the loop.
        for _ in range(len(queue)):
            _, _, who = heappop(queue)
            if isinstance(who, Future):
                if not who.done():
                    who.set_result(None)
                    # It goes on in the next turn of the loop, for as long as a slice.
                    break
                continue
            try:
                who()
            except Exception:
                logger.exception("work that had waited for its turn failed; the rest goes on")
            if time() >= end:
                break
        if queue:
            self._run_soon()
        for _ in range(len(self._on_room)):
            if self.is_full:
                break
            self._on_room.popleft()()


class Usage:
    """How long somebody has had the loop of late."""

    __slots__ = ("_as_of", "used_s")

    def __init__(self, now: float) -> None:
        self.used_s = NEW_USED_S
        self._as_of = now

    def add(self, begun: float, now: float) -> None:
        """Take note that they had it from ``begun`` until ``now``."""
        left = self.used_s - FREE_SHARE * (begun - self._as_of)
        self.used_s = (left if left > 0 else 0.0) + (now - begun)
        self._as_of = now


class Slices:
    """One piece of work, in slices. The first begins here and now."""

    __slots__ = ("_begun", "_turns", "_used_s")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._begun = turns.time()
        self._used_s = 0.0

    async def give_way(self) -> None:
        """Let others have their turn if the slice has come to its end."""
        turns = self._turns
        took = turns.time() - self._begun
        if took < SLICE_S and not turns.is_crowded:
            return
        self._used_s += took
        turns.spend(took)
        await turns.turn(self._used_s)
        self._begun = turns.time()
