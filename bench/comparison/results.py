"""Results: on the terminal, and on disk as JSON with every round's figures, a table and a picture.

A run replaces the parts that it has measured and leaves the others as they are, so one part can be
measured again. The history beside the results has a line for every run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.comparison.figures import Comparison, Measure
from bench.comparison.plot import svg
from bench.comparison.table import markdown, warm_up_markdown
from bench.comparison.warm_up import TOLERANCE, WINDOWS, WarmUps
from bench.history import (
    FILE_NAME,
    FOLDER,
    Point,
    Run,
    append,
    find_trend,
    list_runs,
    point,
    read,
    run_of,
    show_trend,
)
from bench.machine import describe

_NONE: Mapping[str, WarmUps] = {}
_ABOUT_WARM_UPS = (
    "Before it is measured, each server is loaded until its rate has settled: until"
    f" {WINDOWS} windows are within {TOLERANCE:.0%} of each other. How long that took in each"
    " turn: the median, from the shortest to the longest."
)


@dataclass(frozen=True, slots=True)
class Report:
    """What dohle is compared with, and the words of the report about it."""

    name: str
    title: str
    peer: str
    explanation: str = ""
    #: Added to the description of the machine.
    setting: str = ""

    @property
    def path(self) -> Path:
        """Where results are kept by default."""
        return FOLDER / f"{self.name}.json"

    def keep(
        self,
        rows: Sequence[Comparison],
        path: Path,
        *,
        quick: bool,
        warm_ups: Mapping[str, WarmUps] = _NONE,
    ) -> None:
        """Write what was measured, with the warm-ups of those parts that have them."""
        parts = json.loads(path.read_text()) if path.exists() else {}
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        for title in dict.fromkeys(row.part for row in rows):
            parts[title] = {
                "measured": now,
                "machine": describe() + self.setting,
                "quick": quick,
                **({"warm_up": warm_ups[title].to_json()} if title in warm_ups else {}),
                "cases": [_to_json(row) for row in rows if row.part == title],
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")
        self.render(path)

    def end(
        self,
        rows: Sequence[Comparison],
        path: Path,
        *,
        note: str = "",
        warm_ups: Mapping[str, WarmUps] = _NONE,
    ) -> None:
        """Add the run to the history, and show it in the report."""
        figures: dict[str, dict[str, Point]] = {}
        for row in rows:
            points = figures.setdefault(row.part, {})
            points[_name(row)] = point(median(row.dohle), median(row.peer), row.ratio)
        for part, one in warm_ups.items():
            ours, theirs = (
                median(turn.seconds for turn in turns) for turns in (one.dohle, one.peer)
            )
            figures[part]["warm-up [s]"] = point(ours, theirs)
        run = run_of(self.name, figures, rounds=len(rows[0].dohle), note=note)
        append(path.parent / FILE_NAME, run)
        self.render(path)

    def render(self, path: Path) -> None:
        """Write the report and the picture anew, from the results and the history."""
        parts = json.loads(path.read_text())
        runs = read(path.parent / FILE_NAME, self.name)
        rows = [_from_json(title, case) for title, part in parts.items() for case in part["cases"]]
        picture = path.with_suffix(".svg")
        heading = self._heading(parts, runs, picture.name)

        def trend(row: Comparison) -> str:
            return show_trend(find_trend(runs, row.part, _name(row)))

        path.with_suffix(".md").write_text(markdown(rows, heading, self.peer, trend))
        picture.write_text(svg(rows, self.title, self.peer))

    def _heading(self, parts: dict[str, Any], runs: Sequence[Run], picture: str) -> list[str]:
        found = [
            f"# {self.title}",
            "",
            f"Ratios are dohle over {self.peer}: the median of the rounds, and from the least to"
            f" the greatest of them. The figures of both are medians.{self.explanation}",
            "",
            f"![ratios]({picture})",
            "",
        ]
        for name, part in parts.items():
            rounds = len(part["cases"][0]["dohle"])
            how = ", quick" if part["quick"] else ""
            found.append(f"- {name}: {part['measured']}, {rounds} rounds{how}; {part['machine']}")
        warm_ups = {
            name: WarmUps.from_json(part["warm_up"])
            for name, part in parts.items()
            if "warm_up" in part
        }
        if warm_ups:
            found += ["", _ABOUT_WARM_UPS, "", *warm_up_markdown(warm_ups, self.peer)]
        if runs:
            found += ["", "The last runs, oldest first, whose ratios the table repeats:", ""]
            found += list_runs(runs)
        return found


def _name(row: Comparison) -> str:
    """Name a figure in the history."""
    return f"{row.case} [{row.measure.unit}]"


def _to_json(row: Comparison) -> dict[str, Any]:
    return {
        "case": row.case,
        "measure": row.measure.name,
        "unit": row.measure.unit,
        "ratio": round(row.ratio, 4),
        "goal": row.verdict,
        "dohle": [float(f"{value:.5g}") for value in row.dohle],
        "peer": [float(f"{value:.5g}") for value in row.peer],
    }


def _from_json(title: str, case: dict[str, Any]) -> Comparison:
    return Comparison(
        title, case["case"], Measure[case["measure"]], tuple(case["dohle"]), tuple(case["peer"])
    )
