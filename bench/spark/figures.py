"""What is measured of both formats, dohle's and that of Spark's own connector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.comparison.figures import Measure

#: Both are known by the names of their formats.
DOHLE, CONNECTOR = "dohle", "kafka"


@dataclass(frozen=True, slots=True)
class Case:
    """Something that both can do: called with the name of a format, it returns a figure."""

    part: str
    name: str
    measure: Measure
    run: Callable[[str], float]
