"""The comparison as a picture: one line for each case, with its ratio and the spread of it.

The scale is logarithmic, so twice as much and half as much are equally far from the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, floor, log10
from xml.sax.saxutils import escape

from bench.comparison.figures import Comparison
from bench.comparison.table import ratio

_LINE, _HEAD, _LABEL_WIDTH, _PLOT_WIDTH, _RIGHT_WIDTH = 18, 64, 430, 520, 130
_WIDTH = _LABEL_WIDTH + _PLOT_WIDTH + _RIGHT_WIDTH
_COLOURS = {True: "#2a7f3f", False: "#c0392b", None: "#6b7280"}
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def svg(rows: Sequence[Comparison], title: str, peer: str) -> str:
    """Draw all cases."""
    scale = _Scale(rows)
    body: list[str] = []
    y = _HEAD
    for part, cases in groupby(rows, key=lambda row: row.part):
        y += _LINE
        body.append(_text(8, y, part, weight="bold"))
        for row in cases:
            y += _LINE
            body += _line(row, y, scale)
    height = y + 2 * _LINE
    axis = [mark for tick in scale.ticks for mark in _tick(tick, scale.x(tick), height - _LINE)]
    note = f"dohle over {peer}; green: as it is to be, red: not, grey: no goal; │ goal"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
            ' font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
            _text(8, 20, title, weight="bold"),
            _text(8, 38, note),
            *axis,
            *body,
            "</svg>\n",
        ]
    )


class _Scale:
    """From ratios to places."""

    def __init__(self, rows: Sequence[Comparison]) -> None:
        ends = [end for row in rows for end in row.spread] + [0.5, 2.0]
        self._low = floor(log10(min(ends)) * 4) / 4
        self._high = ceil(log10(max(ends)) * 4) / 4
        self.ticks = [tick for tick in _TICKS if self._low <= log10(tick) <= self._high]

    def x(self, value: float) -> float:
        share = (log10(value) - self._low) / (self._high - self._low)
        return _LABEL_WIDTH + share * _PLOT_WIDTH


def _tick(value: float, x: float, bottom: int) -> list[str]:
    colour = "#111827" if value == 1 else "#e5e7eb"
    return [
        f'<line x1="{x:.1f}" y1="{_HEAD}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>',
        _text(x, _HEAD - 6, f"{value:g}", anchor="middle"),
    ]


def _line(row: Comparison, y: int, scale: _Scale) -> list[str]:
    colour = _COLOURS[row.is_reached]
    low, high = row.spread
    middle = y - 4
    found = [
        _text(20, y, f"{row.case} [{row.measure.unit}]"),
        f'<line x1="{scale.x(low):.1f}" y1="{middle}" x2="{scale.x(high):.1f}" y2="{middle}"'
        f' stroke="{colour}" stroke-width="2" opacity="0.5"/>',
        f'<circle cx="{scale.x(row.ratio):.1f}" cy="{middle}" r="4" fill="{colour}"/>',
        _text(_LABEL_WIDTH + _PLOT_WIDTH + 12, y, ratio(row.ratio), weight="bold"),
    ]
    if row.measure.goal is not None:
        x = scale.x(row.measure.goal)
        found.append(
            f'<line x1="{x:.1f}" y1="{middle - 6}" x2="{x:.1f}" y2="{middle + 6}"'
            f' stroke="{colour}" stroke-width="1.5"/>'
        )
    return found


def _text(x: float, y: int, text: str, *, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" text-anchor="{anchor}"'
        f' fill="#111827">{escape(text)}</text>'
    )
