"""The figures of turns: one server after the other, and what comes of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.comparison.figures import Comparison, Measure

DOHLE, KAFKA = "dohle", "Kafka"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one turn."""

    case: str
    measure: Measure
    value: float


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
