"""Results on disk: JSON with every round's figures, and beside it the table and the picture.

A run replaces the parts that it has measured and leaves the others as they are, so one part can be
measured again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.versus.figures import Comparison, Measure
from bench.versus.plot import svg
from bench.versus.table import markdown

RESULTS = Path(__file__).parents[1] / "results" / "versus.json"


def keep(rows: Sequence[Comparison], path: Path, *, quick: bool) -> None:
    """Write what was measured."""
    parts = _read(path)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    for title in dict.fromkeys(row.part for row in rows):
        parts[title] = {
            "measured": now,
            "machine": machine(),
            "quick": quick,
            "cases": [_to_json(row) for row in rows if row.part == title],
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")
    everything = [
        _from_json(title, case) for title, part in parts.items() for case in part["cases"]
    ]
    title = "dohle beside Apache Kafka"
    path.with_suffix(".md").write_text(markdown(everything, _heading(title, parts, path)))
    path.with_suffix(".svg").write_text(svg(everything, title))


def _heading(title: str, parts: dict[str, Any], path: Path) -> list[str]:
    found = [f"# {title}", ""]
    found += [
        "Ratios are dohle over Kafka: the median of the rounds, and from the least to the greatest"
        " of them. The figures of both are medians.",
        "",
        f"![ratios]({path.with_suffix('.svg').name})",
        "",
    ]
    for name, part in parts.items():
        rounds = len(part["cases"][0]["dohle"])
        how = ", quick" if part["quick"] else ""
        found.append(f"- {name}: {part['measured']}, {rounds} rounds{how}; {part['machine']}")
    return found


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _to_json(row: Comparison) -> dict[str, Any]:
    return {
        "case": row.case,
        "measure": row.measure.name,
        "unit": row.measure.unit,
        "ratio": round(row.ratio, 4),
        "goal": row.verdict,
        "dohle": [float(f"{value:.5g}") for value in row.dohle],
        "kafka": [float(f"{value:.5g}") for value in row.kafka],
    }


def _from_json(title: str, case: dict[str, Any]) -> Comparison:
    return Comparison(
        title, case["case"], Measure[case["measure"]], tuple(case["dohle"]), tuple(case["kafka"])
    )


def machine() -> str:
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
