"""Sharing the loop: long work gives way after a slice, and whoever had least of late goes first.

The loop serves everybody. A request that is short is handled as it arrives. What takes longer, be
it one large request or many small ones in a row, is done in slices of a few milliseconds; between
two of them the loop turns, and others are served. If the requests of one turn of the loop together
take too long, those that are left wait in a queue (the turn is crowded). Work leaves the queue in
the order in which it came, except that whoever has used the loop a lot must stand back: so a client
that asks for little waits for one or two slices of others, however many want more.

The collector of garbage knows no slices: a full collection looks at every object that there is, and
long work makes hundreds of thousands. While it is under way there are no full collections; what it
has made is free when it is done, as it has no cycles.

Time is that of the loop. In the simulator it stands still while code runs, and nothing ever waits.
"""

from __future__ import annotations

import gc
import logging
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from dohle.core.steps import PlainSteps

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

# As a threshold of the collector.
_NEVER = 1 << 30

R = TypeVar("R")


class Collector:
    """The collector of garbage, which all loops of a process share."""

    def __init__(self) -> None:
        self._holders = 0
        self._thresholds = gc.get_threshold()

    def hold(self) -> None:
        """Let there be no full collections of garbage."""
        if not self._holders:
            self._thresholds = young, middle, _ = gc.get_threshold()
            gc.set_threshold(young, middle, _NEVER)
        self._holders += 1

    def release(self) -> None:
        """Let there be full collections again, unless others hold them up."""
        self._holders -= 1
        if not self._holders:
            gc.set_threshold(*self._thresholds)


_collector = Collector()


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

    __slots__ = ("_begun", "_has_waited", "_turns", "_used_s")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._begun = turns.time()
        self._used_s = 0.0
        self._has_waited = False

    def __del__(self) -> None:
        self._release_collector()

    def _release_collector(self) -> None:
        if self._has_waited:
            self._has_waited = False
            _collector.release()

    @property
    def is_over(self) -> bool:
        """Tell whether the slice has come to its end."""
        return self._turns.time() - self._begun >= SLICE_S or self._turns.is_crowded

    async def give_way(self) -> None:
        """Let others have their turn if the slice has come to its end."""
        turns = self._turns
        if turns.time() - self._begun >= SLICE_S or turns.is_crowded:
            await self.wait()

    async def wait(self) -> None:
        """Let others have their turn in any case."""
        turns = self._turns
        if not self._has_waited:
            self._has_waited = True
            _collector.hold()
        took = turns.time() - self._begun
        self._used_s += took
        turns.spend(took)
        await turns.turn(self._used_s)
        self._begun = turns.time()

    async def wait_for(self, future: Awaitable[R]) -> R:
        """Wait for something else than a turn: meanwhile the work uses and holds up nothing."""
        took = self._turns.time() - self._begun
        self._used_s += took
        self._turns.spend(took)
        self._release_collector()
        try:
            return await future
        finally:
            self._begun = self._turns.time()

    def advance(self, steps: PlainSteps[R]) -> tuple[R] | None:
        """Do what fits into the slice; return the result, in a tuple, if that was all of it."""
        time, end = self._turns.time, self._begun + SLICE_S
        try:
            next(steps)
            while time() < end:
                next(steps)
        except StopIteration as stop:
            return (stop.value,)
        return None

    async def run(self, steps: PlainSteps[R]) -> R:
        """Do the work to its end."""
        while (result := self.advance(steps)) is None:
            await self.wait()
        return result[0]
