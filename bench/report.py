"""A measured row, and how rows are shown: a table for people, JSON for programs.

Full runs are kept in the history, and ``bench/results/bench.md`` shows the newest of each figure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.comparison.table import number
from bench.comparison.table import ratio as ratio_text
from bench.history import Point, Run, append, find_trend, list_runs, point, read, run_of, show_trend

NAME = "bench"


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


#: What was measured besides, at the end of a name: "1 MB batches (1,234 MB/s)".
_MEASURED = re.compile(r" \([^()]*/s[^()]*\)$")
_COUNTED = re.compile(r"^[\d,]+ (?=pings$)")


def stable(name: str) -> str:
    """Return what is the same in the name of a case or a peer from run to run."""
    return _COUNTED.sub("", _MEASURED.sub("", name))


def to_figures(rows: Iterable[Row]) -> dict[str, dict[str, Point]]:
    """Name the figures of rows as the history does."""
    found: dict[str, dict[str, Point]] = {}
    for row in rows:
        name = f"{stable(row.case)}, beside {stable(row.peer)} [{row.unit}]"
        found.setdefault(row.section, {})[name] = point(row.ours, row.theirs)
    return found


def keep(rows: Iterable[Row], path: Path) -> None:
    """Add a run to the history at this path, and write the report beside it."""
    append(path, run_of(NAME, to_figures(rows)))
    path.with_name(f"{NAME}.md").write_text(markdown(read(path, NAME)))


def markdown(runs: Sequence[Run]) -> str:
    """Write the newest of each figure, with the ratios of the last runs."""
    lines = [
        "# dohle beside its peers",
        "",
        "Times, processor time and memory; ratios are dohle over the peer of the same run, so less"
        " is better. The newest of each figure, and its ratios in the last runs, oldest first:",
        "",
        *list_runs(runs),
        "",
        "| section | case | ratio | dohle | peer | last runs |",
        "|---|---|---:|---:|---:|---|",
    ]
    names = {
        (section, name): None
        for run in runs
        for section in run.figures
        for name in run.figures[section]
    }
    for section, name in names:
        trend = find_trend(runs, section, name)
        ratio, ours, theirs = trend[-1]
        cells = (section, name, f"**{ratio_text(ratio)}**", number(ours), number(theirs))
        lines.append(f"| {' | '.join((*cells, show_trend(trend)))} |")
    return "\n".join(lines) + "\n"


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
