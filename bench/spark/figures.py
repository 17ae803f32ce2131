"""What is measured, and how dohle's figures are compared with those of Spark's own connector.

Both take turns at a case, so the figures of a round were taken within the same minute: the ratio is
the median of the rounds' ratios, dohle over the connector, and its spread is from the least to the
greatest of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from statistics import median

#: Both are known by the names of their formats.
DOHLE, CONNECTOR = "dohle", "kafka"


class Measure(Enum):
    """A kind of figure: its unit, whether more is better, and what the ratio has to reach."""

    READ = "rows/s", True, 1.0
    WRITTEN = "rows/s", True, 0.7
    THROUGH = "rows/s", True, None
    OVERHEAD = "ms", False, None

    def __init__(self, unit: str, more_is_better: bool, goal: float | None) -> None:
        self.unit = unit
        self.more_is_better = more_is_better
        self.goal = goal


@dataclass(frozen=True, slots=True)
class Case:
    """Something that both can do: called with the name of a format, it returns a figure."""

    part: str
    name: str
    measure: Measure
    run: Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case of both: a figure of each for every round."""

    part: str
    case: str
    measure: Measure
    dohle: tuple[float, ...]
    connector: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """dohle over the connector, round by round."""
        return [ours / theirs for ours, theirs in zip(self.dohle, self.connector, strict=True)]

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
        return None if goal is None else self.ratio >= goal

    @property
    def verdict(self) -> str:
        goal = self.measure.goal
        return "" if goal is None else f"{'reached' if self.is_reached else 'MISSED'} (≥ {goal:g})"
