"""Results: a table for the terminal, and on disk JSON with every round's figures and Markdown.

A run replaces the parts that it has measured and leaves the others as they are, so one part can be
measured again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.spark.field import MASTER
from bench.spark.figures import Comparison, Measure
from bench.versus.results import machine
from bench.versus.table import number, ratio

RESULTS = Path(__file__).parents[1] / "results" / "spark.json"

COLUMNS = ("part", "case", "ratio", "spread", "dohle", "connector", "unit", "goal")
#: Columns of numbers.
_RIGHT = {"ratio", "spread", "dohle", "connector"}

_HEADING = (
    "# dohle on Spark beside Spark's own connector for Kafka",
    "",
    "Both read and write topics of the same broker, dohle's, in the same Spark session, in turns."
    " Ratios are dohle over the connector: the median of the rounds, and from the least to the"
    " greatest of them. The figures of both are medians. The connector delivers at least once in"
    " all cases. Rates of streams leave out the first batch; of a batch of 4 rows the time is"
    " shown, so there less is better.",
    "",
)


def show(rows: Iterable[Comparison]) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in _RIGHT else "left")
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=150).print(table)


def keep(rows: Sequence[Comparison], path: Path, *, quick: bool) -> None:
    """Write what was measured."""
    parts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    for title in dict.fromkeys(row.part for row in rows):
        parts[title] = {
            "measured": now,
            "machine": f"{machine()}, {MASTER}",
            "quick": quick,
            "cases": [_to_json(row) for row in rows if row.part == title],
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")
    path.with_suffix(".md").write_text(_markdown(parts))


def _markdown(parts: dict[str, Any]) -> str:
    lines = list(_HEADING)
    for title, part in parts.items():
        rounds = len(part["cases"][0]["dohle"])
        how = ", quick" if part["quick"] else ""
        lines.append(f"- {title}: {part['measured']}, {rounds} rounds{how}; {part['machine']}")
    lines += ["", f"| {' | '.join(COLUMNS)} |"]
    lines.append("|" + "|".join("---:" if name in _RIGHT else "---" for name in COLUMNS) + "|")
    for title, part in parts.items():
        for case in part["cases"]:
            shown = list(_cells(_from_json(title, case)))
            shown[2] = f"**{shown[2]}**"
            lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _cells(row: Comparison) -> tuple[str, ...]:
    low, high = row.spread
    return (
        row.part,
        row.case,
        ratio(row.ratio),
        f"{ratio(low)}–{ratio(high)}",
        number(median(row.dohle)),
        number(median(row.connector)),
        row.measure.unit,
        row.verdict,
    )


def _to_json(row: Comparison) -> dict[str, Any]:
    return {
        "case": row.case,
        "measure": row.measure.name,
        "unit": row.measure.unit,
        "ratio": round(row.ratio, 4),
        "goal": row.verdict,
        "dohle": [float(f"{value:.5g}") for value in row.dohle],
        "connector": [float(f"{value:.5g}") for value in row.connector],
    }


def _from_json(title: str, case: dict[str, Any]) -> Comparison:
    return Comparison(
        title,
        case["case"],
        Measure[case["measure"]],
        tuple(case["dohle"]),
        tuple(case["connector"]),
    )
