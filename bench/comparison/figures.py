"""What is measured, and how the figures of dohle and of a peer are compared.

Both take turns, so the figures of a round were taken within the same minute: the ratio is the
median of the rounds' ratios, dohle over the peer, and its spread is from the least to the greatest
of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import median


class Measure(Enum):
    """A kind of figure: its unit, whether more is better, and what the ratio has to reach."""

    THROUGHPUT = "MB/s", True, 1.0
    RATE = "/s", True, 1.0
    CPU_PER_GB = "CPU s/GB", False, 0.7
    CPU_PER_REQUEST = "CPU µs each", False, None
    LATENCY = "ms", False, None
    LATENCY_P99 = "ms", False, 1.0
    START = "s", False, 0.3
    MEMORY = "MB", False, 0.25
    CLEANING = "MB/s", True, 0.5
    CLEANING_CPU = "CPU s/GB", False, 2.0
    KEYS = "keys/s", True, 0.5
    ROWS_READ = "rows/s", True, 1.0
    ROWS_WRITTEN = "rows/s", True, 0.7
    ROWS_THROUGH = "rows/s", True, None
    CREATION = "s", False, None
    IDLE_CPU = "CPU ms/s", False, None
    UNAVAILABLE = "s without", False, 1.0
    #: What the follower of a partition costs, beside its leader.
    FOLLOWER = "of the leader's CPU", False, 0.5, True

    def __init__(
        self, unit: str, more_is_better: bool, goal: float | None, is_of_dohle: bool = False
    ) -> None:
        self.unit = unit
        self.more_is_better = more_is_better
        self.goal = goal
        #: Whether the goal is for dohle's own value, whatever the peer's is.
        self.is_of_dohle = is_of_dohle


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case of both: a value of each for every round."""

    part: str
    case: str
    measure: Measure
    dohle: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """dohle over the peer, round by round."""
        return [ours / theirs for ours, theirs in zip(self.dohle, self.peer, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.ratios), max(self.ratios)

    @property
    def is_reached(self) -> bool | None:
        """Whether the ratio is what it is to be; none if there is no such goal."""
        goal = self.measure.goal
        if goal is None:
            return None
        found = median(self.dohle) if self.measure.is_of_dohle else self.ratio
        return found >= goal if self.measure.more_is_better else found <= goal

    @property
    def verdict(self) -> str:
        goal = self.measure.goal
        if goal is None:
            return ""
        sign = "≥" if self.measure.more_is_better else "≤"
        whose = "itself " if self.measure.is_of_dohle else ""
        return f"{'reached' if self.is_reached else 'MISSED'} ({whose}{sign} {goal:g})"
