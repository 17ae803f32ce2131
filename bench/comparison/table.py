"""The comparison as a table: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

from bench.comparison.figures import Comparison

_PEER = "peer"
_COLUMNS = ("part", "case", "ratio", "spread", "dohle", _PEER, "unit", "goal")
#: Columns of numbers.
_RIGHT = {"ratio", "spread", "dohle", _PEER}


def cells(row: Comparison) -> tuple[str, ...]:
    """Return what stands in each column."""
    low, high = row.spread
    return (
        row.part,
        row.case,
        ratio(row.ratio),
        f"{ratio(low)}–{ratio(high)}",
        number(median(row.dohle)),
        number(median(row.peer)),
        row.measure.unit,
        row.verdict,
    )


def ratio(value: float) -> str:
    """Write a ratio; where it is small, with more places."""
    return f"{value:.2f}" if value >= 0.095 else f"{value:.3f}"


def number(value: float) -> str:
    """Write a number with three figures that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def markdown(rows: Sequence[Comparison], heading: Iterable[str], peer: str) -> str:
    """Write a table, with some lines above it."""
    columns = [peer if name == _PEER else name for name in _COLUMNS]
    lines = [*heading, "", f"| {' | '.join(columns)} |"]
    lines.append("|" + "|".join("---:" if name in _RIGHT else "---" for name in _COLUMNS) + "|")
    for row in rows:
        shown = list(cells(row))
        shown[2] = f"**{shown[2]}**"
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def show(rows: Iterable[Comparison], peer: str) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in _COLUMNS:
        justify: Literal["left", "right"] = "right" if name in _RIGHT else "left"
        table.add_column(peer if name == _PEER else name, justify=justify)
    for row in rows:
        table.add_row(*cells(row))
    Console(width=150).print(table)
