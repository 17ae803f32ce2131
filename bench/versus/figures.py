"""What is measured, and how two servers' figures are compared.

A turn of one server gives a figure for each case. Turns alternate, so the figures of a round were
taken within the same minute: the ratio is the median of the rounds' ratios, dohle over Kafka, and
its spread is from the least to the greatest of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

DOHLE, KAFKA = "dohle", "Kafka"


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

    def __init__(self, unit: str, more_is_better: bool, goal: float | None) -> None:
        self.unit = unit
        self.more_is_better = more_is_better
        self.goal = goal


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one turn."""

    case: str
    measure: Measure
    value: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case of both servers: a value of each for every round."""

    part: str
    case: str
    measure: Measure
    dohle: tuple[float, ...]
    kafka: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """dohle over Kafka, round by round."""
        return [ours / theirs for ours, theirs in zip(self.dohle, self.kafka, strict=True)]

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
        return self.ratio >= goal if self.measure.more_is_better else self.ratio <= goal

    @property
    def verdict(self) -> str:
        goal = self.measure.goal
        if goal is None:
            return ""
        sign = "≥" if self.measure.more_is_better else "≤"
        return f"{'reached' if self.is_reached else 'MISSED'} ({sign} {goal:g})"


def compare(part: str, turns: Mapping[str, Sequence[Sequence[Figure]]]) -> list[Comparison]:
    """Put together what both servers' turns have given; both must have measured the same."""
    cases = {(figure.case, figure.measure): None for figure in turns[DOHLE][0]}
    found: dict[str, dict[tuple[str, Measure], list[float]]] = {}
    for server, figures_of_turns in turns.items():
        values = found[server] = {case: [] for case in cases}
        for figures in figures_of_turns:
            if {(figure.case, figure.measure) for figure in figures} != set(cases):
                raise ValueError(f"{server} has measured other cases of {part}")
            for figure in figures:
                values[figure.case, figure.measure].append(figure.value)
    return [
        Comparison(
            part,
            case,
            measure,
            tuple(found[DOHLE][case, measure]),
            tuple(found[KAFKA][case, measure]),
        )
        for case, measure in cases
    ]
