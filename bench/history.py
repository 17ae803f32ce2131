"""Every run that was kept, by date and commit: one line of JSON each, and the trend over them.

``make bench`` and its sisters (versus, cluster, spark) add a line; quick runs do not.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.comparison.table import ratio as ratio_text
from bench.machine import find_commit, memory_gb

FOLDER = Path(__file__).parent / "results"
FILE_NAME = "history.jsonl"
#: How many runs a trend shows.
RUNS_SHOWN = 5
_TREE = Path(__file__).parents[1]


class Point(NamedTuple):
    """A figure of one run: dohle's and the peer's medians, and the ratio of both."""

    ratio: float
    dohle: float
    peer: float


#: Figures by section and name; a name ends with the unit.
Figures = Mapping[str, Mapping[str, Point]]


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured, when, of what and on what."""

    #: In UTC, to the minute.
    date: str
    commit: str | None
    #: Whether the work tree differed from the commit.
    dirty: bool
    what: str
    rounds: int | None
    note: str
    python: str
    cores: int | None
    memory_gb: int | None
    figures: Figures

    def to_line(self) -> str:
        """Write it as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> Run:
        """Read a line."""
        found = json.loads(line)
        found["figures"] = {
            section: {name: Point(*point) for name, point in points.items()}
            for section, points in found["figures"].items()
        }
        return cls(**found)

    def __str__(self) -> str:
        commit = f"{self.commit or 'no commit'}{' and changes' if self.dirty else ''}"
        return ", ".join(filter(None, (self.date, commit, self.note)))


def run_of(what: str, figures: Figures, *, rounds: int | None = None, note: str = "") -> Run:
    """Describe a run of this tree that has just ended."""
    commit, dirty = find_commit(_TREE)
    return Run(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        commit=commit,
        dirty=dirty,
        what=what,
        rounds=rounds,
        note=note,
        python=platform.python_version(),
        cores=os.cpu_count(),
        memory_gb=memory_gb(),
        figures=figures,
    )


def append(path: Path, run: Run) -> None:
    """Add a run to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(run.to_line() + "\n")


def read(path: Path, what: str) -> list[Run]:
    """Return the runs of one kind, oldest first; none if there is no file."""
    if not path.exists():
        return []
    runs = [Run.from_line(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [run for run in runs if run.what == what]


def point(dohle: float, peer: float, ratio: float | None = None) -> Point:
    """Make a point, with four digits; the ratio may be a median over rounds."""
    values = (dohle / peer if ratio is None else ratio, dohle, peer)
    return Point(*(float(f"{value:.4g}") for value in values))


def find_trend(runs: Iterable[Run], section: str, name: str) -> list[Point]:
    """Return a figure of the last runs that have it, oldest first."""
    found = [run.figures[section][name] for run in runs if name in run.figures.get(section, ())]
    return found[-RUNS_SHOWN:]


def show_trend(points: Sequence[Point]) -> str:
    """Write the ratios of a trend."""
    return " → ".join(ratio_text(one.ratio) for one in points)


def list_runs(runs: Sequence[Run]) -> list[str]:
    """Name the runs that trends are taken from."""
    return [f"- {run}" for run in runs[-RUNS_SHOWN:]]
