"""A measured row, and how rows are shown: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Row:
    """One case: our time, the peer's in the same run, and what is to be reached.

    ``reach`` is a bound on the ratio ours/peer: at most that.
    """

    section: str
    case: str
    unit: str
    ours: float
    peer: str
    theirs: float
    reach: float | None = None

    @property
    def ratio(self) -> float:
        """Our time over the peer's: below 1 is faster than the peer."""
        return self.ours / self.theirs

    @property
    def verdict(self) -> str:
        if self.reach is None:
            return ""
        return f"{'reached' if self.ratio <= self.reach else 'MISSED'} (≤ {self.reach:.2f})"


def interleave(cases: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Run the cases in turn, so that a slow minute hits all of them; return medians."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            times[name].append(case())
    return {name: median(values) for name, values in times.items()}


def timed(action: Callable[[], object]) -> float:
    """Return how many seconds an action took."""
    start = perf_counter()
    action()
    return perf_counter() - start


def show(rows: Iterable[Row], *, as_json: bool) -> None:
    """Print the rows."""
    rows = list(rows)
    if as_json:
        found = [{**asdict(row), "ratio": row.ratio, "verdict": row.verdict} for row in rows]
        print(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("section", "case", "dohle", "peer", "peer's", "ratio", "to reach")
    for row in rows:
        table.add_row(
            row.section,
            row.case,
            f"{row.ours:,.2f} {row.unit}",
            row.peer,
            f"{row.theirs:,.2f} {row.unit}",
            f"{row.ratio:.2f}",
            row.verdict,
        )
    Console(width=120).print(table)
