"""Results: on the terminal, and on disk as JSON with every round's figures, a table and a picture.

A run replaces the parts that it has measured and leaves the others as they are, so one part can be
measured again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.comparison.figures import Comparison, Measure
from bench.comparison.plot import svg
from bench.comparison.table import markdown, warm_up_markdown
from bench.comparison.warm_up import TOLERANCE, WINDOWS, WarmUps

_FOLDER = Path(__file__).parents[1] / "results"
_NONE: Mapping[str, WarmUps] = {}
_ABOUT_WARM_UPS = (
    "Before it is measured, each server is loaded until its rate has settled: until"
    f" {WINDOWS} windows are within {TOLERANCE:.0%} of each other. How long that took in each"
    " turn: the median, from the shortest to the longest."
)


@dataclass(frozen=True, slots=True)
class Report:
    """What dohle is compared with, and what is to be said about it."""

    name: str
    title: str
    peer: str
    explanation: str = ""
    #: What belongs to the machine's description.
    setting: str = ""

    @property
    def path(self) -> Path:
        """Where results are kept unless it is told."""
        return _FOLDER / f"{self.name}.json"

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
                "machine": _machine() + self.setting,
                "quick": quick,
                **({"warm_up": warm_ups[title].to_json()} if title in warm_ups else {}),
                "cases": [_to_json(row) for row in rows if row.part == title],
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")
        everything = [
            _from_json(title, case) for title, part in parts.items() for case in part["cases"]
        ]
        picture = path.with_suffix(".svg")
        heading = self._heading(parts, picture.name)
        path.with_suffix(".md").write_text(markdown(everything, heading, self.peer))
        picture.write_text(svg(everything, self.title, self.peer))

    def _heading(self, parts: dict[str, Any], picture: str) -> list[str]:
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
        return found


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


def _machine() -> str:
    """Say what it was measured on."""
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return (
        f"{os.cpu_count()} cores ({processor}), Linux {platform.release()},"
        f" Python {platform.python_version()}, {_java()}"
    )


def _java() -> str:
    command = shutil.which("java")
    if command is None:
        return "no Java"
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    return done.stderr.partition("\n")[0]
