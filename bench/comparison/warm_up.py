"""The warm-up: a load is repeated until the server's rate has settled.

A JVM gets faster for a minute or more while its compilers work, so a fixed short warm-up measures
Kafka cold. The rate counts as settled when the last three windows differ by 5 % at most; it runs
for at least ``least_s``, and is given up after ``most_s``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from statistics import median
from typing import Any

WINDOWS = 3
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a warm-up takes, in seconds of wall-clock time."""

    least_s: float
    most_s: float
    #: How long a window is at least: it ends with the first whole cycle of loads after this.
    window_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.least_s <= self.most_s:
            raise ValueError(f"a warm-up of {self.least_s:g} to {self.most_s:g} s is not possible")

    def __str__(self) -> str:
        return f"{self.least_s:g} to {self.most_s:g} s"


FULL = Limits(least_s=40.0, most_s=120.0, window_s=8.0)
#: Too short for a JVM: figures of a quick run flatter dohle.
QUICK = Limits(least_s=3.0, most_s=10.0, window_s=1.0)


class Phase(Enum):
    """Where a warm-up stands."""

    RUNNING = auto()
    SETTLED = auto()
    GIVEN_UP = auto()


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A warm-up that has ended: how long it took, the rate of each window, and its outcome."""

    seconds: float
    rates: tuple[float, ...]
    phase: Phase

    @property
    def is_settled(self) -> bool:
        return self.phase is Phase.SETTLED

    def __str__(self) -> str:
        if self.is_settled:
            return f"{self.seconds:.0f} s"
        last = self.rates[-WINDOWS:]
        apart = f": {1 - min(last) / max(last):.0%} apart" if last and max(last) > 0 else ""
        return f"{self.seconds:.0f} s (not settled{apart})"


def has_settled(rates: Sequence[float]) -> bool:
    """Tell whether the last windows' rates are within the tolerance of each other."""
    last = rates[-WINDOWS:]
    return len(last) == WINDOWS and min(last) >= (1 - TOLERANCE) * max(last) > 0


def find_phase(limits: Limits, elapsed_s: float, rates: Sequence[float]) -> Phase:
    """Decide after a window whether the warm-up is over."""
    if elapsed_s >= limits.least_s and has_settled(rates):
        return Phase.SETTLED
    return Phase.GIVEN_UP if elapsed_s >= limits.most_s else Phase.RUNNING


def warm_up(
    load: Callable[[int], object],
    cost: Callable[[], float],
    limits: Limits,
    *,
    cycle: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> WarmUp:
    """Repeat a load, called with 0, 1, 2, ..., until its rate has settled.

    ``cost`` returns what all loads so far have cost, in seconds: a window's rate is the loads of
    the window over what they have cost. Loads may differ within a ``cycle``, so a window has whole
    cycles only: rates of different mixtures cannot be compared.
    """
    begun = window_begun = clock()
    cost_before, loads_before = cost(), 0
    rates: list[float] = []
    for done in count(1):
        load(done - 1)
        now = clock()
        if done % cycle == 0 and now - window_begun >= limits.window_s:
            spent = cost() - cost_before
            rates.append((done - loads_before) / spent if spent > 0 else 0.0)
            window_begun, cost_before, loads_before = now, cost(), done
        phase = find_phase(limits, now - begun, rates)
        if phase is not Phase.RUNNING:
            return WarmUp(now - begun, tuple(rates), phase)
    raise AssertionError("count has no end")


@dataclass(frozen=True, slots=True)
class WarmUps:
    """The warm-ups of a part, one for each turn of dohle and of its peer."""

    limits: Limits
    dohle: tuple[WarmUp, ...]
    peer: tuple[WarmUp, ...]

    @property
    def cells(self) -> tuple[str, str, str]:
        """The limits, and how long each server's warm-ups took."""
        return str(self.limits), _describe(self.dohle), _describe(self.peer)

    def to_json(self) -> dict[str, Any]:
        return {
            "least_s": self.limits.least_s,
            "most_s": self.limits.most_s,
            "window_s": self.limits.window_s,
            "dohle": _turns_to_json(self.dohle),
            "peer": _turns_to_json(self.peer),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> WarmUps:
        limits = Limits(found["least_s"], found["most_s"], found["window_s"])
        return cls(limits, _turns_from_json(found["dohle"]), _turns_from_json(found["peer"]))


def _describe(turns: Sequence[WarmUp]) -> str:
    """Say how long it took in the middle, from the shortest to the longest, and with what end."""
    times = [turn.seconds for turn in turns]
    text = f"{median(times):.0f} s"
    if len(times) > 1:
        text += f" ({min(times):.0f}–{max(times):.0f})"
    settled = sum(turn.is_settled for turn in turns)
    return text if settled == len(turns) else f"{text}, settled in {settled} of {len(turns)} turns"


def _turns_to_json(turns: Sequence[WarmUp]) -> dict[str, Any]:
    return {
        "seconds": [round(turn.seconds, 1) for turn in turns],
        "settled": [turn.is_settled for turn in turns],
    }


def _turns_from_json(found: dict[str, Any]) -> tuple[WarmUp, ...]:
    return tuple(
        WarmUp(seconds, (), Phase.SETTLED if settled else Phase.GIVEN_UP)
        for seconds, settled in zip(found["seconds"], found["settled"], strict=True)
    )
