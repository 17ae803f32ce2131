"""The comparison as a table: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from bench.comparison.figures import Comparison
from bench.comparison.warm_up import WarmUps

_PEER, _TREND = "peer", "last runs"
_COLUMNS = ("part", "case", "ratio", "spread", "dohle", _PEER, "unit", "goal")
#: Columns of numbers.
_RIGHT = {"ratio", "spread", "dohle", _PEER}
_NONE: Mapping[str, WarmUps] = {}


def cells(row: Comparison, remark: str = "") -> tuple[str, ...]:
    """Return the text of each column; a remark is added to the verdict."""
    low, high = row.spread
    return (
        row.part,
        row.case,
        ratio(row.ratio),
        f"{ratio(low)}–{ratio(high)}",
        number(median(row.dohle)),
        number(median(row.peer)),
        row.measure.unit,
        "; ".join(filter(None, (row.verdict, remark))),
    )


def tail_remarks(rows: Sequence[Comparison], peer: str) -> dict[tuple[str, str], str]:
    """Find where p99.9 is worse than the peer's, to be told beside p99.

    Returns remarks by part and case of the rows of p99.
    """
    tails = {(row.part, row.case): row for row in rows if row.case.endswith("p99.9")}
    found = {}
    for row in rows:
        tail = tails.get((row.part, f"{row.case}.9"))
        if tail is not None and tail.ratio > 1:
            ours, theirs = number(median(tail.dohle)), number(median(tail.peer))
            found[row.part, row.case] = (
                f"p99.9 is worse: {ratio(tail.ratio)} ({ours} ms, {peer}'s {theirs})"
            )
    return found


def ratio(value: float) -> str:
    """Write a ratio; where it is small, with more places."""
    return f"{value:.2f}" if value >= 0.095 else f"{value:.3f}"


def number(value: float) -> str:
    """Write a number with three figures that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def markdown(
    rows: Sequence[Comparison],
    heading: Iterable[str],
    peer: str,
    trend: Callable[[Comparison], str] | None = None,
) -> str:
    """Write a table, with some lines above it, and with the ratios of the last runs if known."""
    names = (*_COLUMNS, _TREND) if trend else _COLUMNS
    columns = [peer if name == _PEER else name for name in names]
    lines = [*heading, "", f"| {' | '.join(columns)} |"]
    lines.append("|" + "|".join("---:" if name in _RIGHT else "---" for name in names) + "|")
    remarks = tail_remarks(rows, peer)
    for row in rows:
        shown = list(cells(row, remarks.get((row.part, row.case), "")))
        shown[2] = f"**{shown[2]}**"
        if trend:
            shown.append(trend(row))
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def warm_up_markdown(warm_ups: Mapping[str, WarmUps], peer: str) -> list[str]:
    """Write a table of how long the warm-ups of each part took."""
    lines = [
        f"| warm-up of | limits | dohle | {peer} |",
        "|---|---|---:|---:|",
    ]
    for part, one in warm_ups.items():
        lines.append(f"| {' | '.join((part, *one.cells))} |")
    return lines


def show(rows: Sequence[Comparison], peer: str, warm_ups: Mapping[str, WarmUps] = _NONE) -> None:
    """Print a table, and one of the warm-ups if there were any."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in _COLUMNS:
        justify: Literal["left", "right"] = "right" if name in _RIGHT else "left"
        table.add_column(peer if name == _PEER else name, justify=justify)
    remarks = tail_remarks(rows, peer)
    for row in rows:
        table.add_row(*cells(row, remarks.get((row.part, row.case), "")))
    console = Console(width=150)
    console.print(table)
    if warm_ups:
        table = Table("warm-up of", "limits", "dohle", peer)
        for part, one in warm_ups.items():
            table.add_row(part, *one.cells)
        console.print(table)
