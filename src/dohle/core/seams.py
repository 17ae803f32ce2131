"""The seams for time and randomness: nothing else asks the machine for either.

A test or the simulator passes a clock that it moves by hand and a seeded generator; then a whole
cluster's run repeats exactly.
"""

from __future__ import annotations

import random
import time
from typing import Protocol

#: ``random.Random(seed)`` in tests, :func:`system_rng` in a running node.
Rng = random.Random


class Clock(Protocol):
    """The source of time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, as records carry it. May jump."""

    def monotonic_ms(self) -> int:
        """Time for measuring intervals: never goes back."""

    def monotonic_s(self) -> float:
        """The same time in seconds, as finely as the machine knows it."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the monotonic time."""
        return time.monotonic_ns() // 1_000_000

    # Asked for every read event: a method of our own would double what it takes.
    monotonic_s = staticmethod(time.monotonic)


class ManualClock:
    """A clock that stands still until ``advance`` moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time last set."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the same: this clock never jumps back."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Return the same in seconds."""
        return self._now_ms / 1000

    def advance(self, ms: int) -> None:
        """Move forward."""
        if ms < 0:
            raise ValueError("time does not go back")
        self._now_ms += ms


def thread_cpu_s() -> float:
    """Return the CPU time of the thread that asks."""
    return time.thread_time()


def system_rng() -> Rng:
    """Return a generator seeded by the operating system."""
    return random.SystemRandom()
