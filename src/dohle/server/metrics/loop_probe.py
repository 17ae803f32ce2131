"""How late the loop is, and how busy.

A timer that should go off every ``_TICK_S`` tells by how much it is late: that long does whatever
comes now wait for what is being done. How busy the loop is, is told by the CPU time of its thread.
It runs only where metrics are served.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections import deque

from dohle.metrics.samples import Samples
from dohle.server.host import NodeHost

_TICK_S = 0.1
#: As long as the one-minute rates of Kafka.
_WINDOW_TICKS = 600


class LoopProbe:
    """The delays of a loop."""

    def __init__(self, loop: AbstractEventLoop, host: NodeHost) -> None:
        self.delays = Samples()
        self.tick_count = 0
        self.delay_sum_s = 0.0
        self._loop = loop
        self._host = host
        self._now = host.clock.monotonic_s
        self._used: deque[tuple[float, float]] = deque(maxlen=_WINDOW_TICKS)
        self._timer: TimerHandle | None = None
        self._expected_s = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._expected_s = self._now() + _TICK_S
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        now = self._now()
        delay = max(0.0, now - self._expected_s)
        self.delays.add(delay, 1.0)
        self.delay_sum_s += delay
        self.tick_count += 1
        used = self._host.thread_cpu_s()
        if used is not None:
            self._used.append((now, used))
        self.start()

    def idle_share(self) -> float | None:
        """Return for how much of the last minute the loop had nothing to do; None if not known."""
        if len(self._used) < 2:
            return None
        (first_s, first_used), (last_s, last_used) = self._used[0], self._used[-1]
        return min(1.0, max(0.0, 1 - (last_used - first_used) / (last_s - first_s)))

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
