"""Sharing the loop: long work gives way after a slice, and whoever had least of late goes first.

The loop serves everybody. A request that is short is handled as it arrives. What takes longer, be
it one large request or many small ones in a row, is done in slices of a few milliseconds; between
two of them the loop turns, and others are served. If the requests of one turn of the loop together
take too long, those that are left wait in a queue (the turn is crowded), and long work waits in
another. Each turn of the loop serves requests first, for some milliseconds, then one slice. Who
waits leaves the queue in the order in which they came, except that whoever has used the loop a lot
must stand back: so a client that asks for little waits for one or two slices of others, however
many want more.

Time is that of the loop. In the simulator it stands still while code runs, and nothing ever waits.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from sys import maxsize

from dohle.core.host import Host
from dohle.server.net.collector import COLLECTOR, Collector
from dohle.server.net.step_needs import StepNeeds

logger = logging.getLogger("dohle.server")

#: For how long one piece of work may keep the loop to itself.
SLICE_S = 0.003
#: For how long work that has just come may keep it while other requests wait: all of them have a
#: beginning before any goes on, so that one that asks for little is answered soon.
SHORT_SLICE_S = 0.0003
#: From then on in a turn of the loop, work is put into the queue.
TURN_S = 0.005
#: The share of the loop that a client may have without standing back for others.
FREE_SHARE = 0.05
#: A new client counts as if it had used this much: those that are known to ask for little go first.
NEW_USED_S = 0.025
#: Who has waited for an answer counts as if it had used this much of the loop, if very many are
#: answered at once: requests that have just come go first.
AWAITED_USED_S = 0.0025
#: Who seems to have had the loop for so long may have had less of it: another process may have had
#: the processor meanwhile. To ask takes longer than to look at the clock.
DOUBTFUL_S = 0.0005
#: How long whoever has used the loop stands back, as a multiple of that time, and at most.
STAND_BACK = 20
STAND_BACK_S_MAX = 1.0


class Turns:
    """The queue of work that waits for its next slice."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        host: Host,
        queued_max: int | None = None,
        collector: Collector = COLLECTOR,
    ) -> None:
        """Make a queue; from ``queued_max`` waiting in it on, it is full."""
        self.loop = loop
        self.time = loop.time
        #: What work needs besides time.
        self.needs = StepNeeds(loop, host)
        self._cpu_s = host.thread_cpu_s
        self._cpu_at = self._cpu_s()
        #: Held up while there is work in slices.
        self.collector = collector
        #: Whether this turn of the loop has been long enough: further work is to ``wait``.
        self.is_crowded = False
        self._spent_s = 0.0
        # When they are due, a number that keeps the order, and whom to tell.
        self._requests: list[tuple[float, int, Callable[[], None]]] = []
        self._slices: list[tuple[float, int, Future[None]]] = []
        self._numbers = count()
        self._queued_max = maxsize if queued_max is None else queued_max
        #: Whether no more requests should be received, since so many wait already.
        self.is_full = False
        self._on_room: deque[Callable[[], None]] = deque()
        self._is_run_due = False

    def __len__(self) -> int:
        return len(self._requests) + len(self._slices)

    def spend(self, seconds: float) -> None:
        """Take note that the loop was held for so long."""
        if seconds <= 0:
            return
        if not self._spent_s:
            # Runs in the next turn, before anything that arrives until then.
            self.loop.call_soon(self._begin_turn)
        self._spent_s += seconds
        if self._spent_s >= TURN_S:
            self.is_crowded = True

    def _begin_turn(self) -> None:
        self._spent_s = 0.0
        self.is_crowded = False
        self._cpu_at = self._cpu_s()

    def used_s(self, begun: float, now: float) -> float:
        """Return for how long somebody has used the loop who had it from ``begun`` until ``now``.

        If that is long, it is no more than the processor time of this turn that nobody was asked
        about before: on a busy machine the loop itself has to wait, which is no client's doing.
        """
        took = now - begun
        if took < DOUBTFUL_S or self._cpu_at is None:
            return took
        before, self._cpu_at = self._cpu_at, self._cpu_s()
        return took if self._cpu_at is None else min(took, self._cpu_at - before)

    @property
    def first_slice_s(self) -> float:
        """For how long work that has just come may keep the loop."""
        return SHORT_SLICE_S if self._requests else SLICE_S

    def call_when_not_full(self, go_on: Callable[[], None]) -> None:
        """Call this when there is room in the queue again."""
        self._on_room.append(go_on)

    def wait(self, used_s: float, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when it is the turn of a client that has used the loop for so long."""
        heappush(self._requests, (self._due(used_s), next(self._numbers), go_on))
        self._run_soon()

    def turn(self, used_s: float) -> Future[None]:
        """Return what is done when it is the turn of work that has used the loop for so long."""
        future: Future[None] = self.loop.create_future()
        heappush(self._slices, (self._due(used_s), next(self._numbers), future))
        self._run_soon()
        return future

    def _due(self, used_s: float) -> float:
        return self.time() + min(STAND_BACK * used_s, STAND_BACK_S_MAX)

    def _run_soon(self) -> None:
        self.is_full = len(self) >= self._queued_max
        if not self._is_run_due:
            self._is_run_due = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        """Let those go on whose turn it is."""
        self._is_run_due = False
        self._run_requests()
        while self._slices:
            _, _, slice_begins = heappop(self._slices)
            if not slice_begins.done():
                # It goes on in the next turn of the loop.
                slice_begins.set_result(None)
                break
        self.is_full = False
        if len(self):
            self._run_soon()
        # No more than there is room for: the others would only find it full again.
        room = self._queued_max - len(self)
        while self._on_room and room > 0:
            room -= 1
            self._on_room.popleft()()
        if self._on_room:
            self._run_soon()

    def _run_requests(self) -> None:
        """Serve requests, until this turn of the loop has been long enough."""
        requests, time = self._requests, self.time
        end = time() + TURN_S
        # Those that are queued meanwhile wait for the next turn of the loop.
        for _ in range(len(requests)):
            _, _, go_on = heappop(requests)
            try:
                go_on()
            except Exception:
                logger.exception("work that had waited for its turn failed; the rest goes on")
            if time() >= end:
                break


class Usage:
    """How long somebody has had the loop of late."""

    __slots__ = ("_as_of", "_used_s")

    def __init__(self, now: float) -> None:
        self._used_s = NEW_USED_S
        self._as_of = now

    def of_late(self, now: float) -> float:
        """Return for how long, less the share that is free."""
        left = self._used_s - FREE_SHARE * (now - self._as_of)
        return left if left > 0 else 0.0

    def add(self, used_s: float, now: float) -> None:
        """Take note that they have used it for so long until ``now``."""
        self._used_s = self.of_late(now) + used_s
        self._as_of = now
