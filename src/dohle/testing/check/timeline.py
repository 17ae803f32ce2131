"""The time line of a check as an SVG: faults, throughput, what was unavailable, anomalies.

Colours come from the page's style sheet, for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape

from dohle.testing.check.faults import FaultKind
from dohle.testing.check.figures import GAP_S_MIN, Figures
from dohle.testing.check.load import PARTITIONS
from dohle.testing.check.verdict import Verdict

_WIDTH, _LEFT, _RIGHT = 1000, 120, 12
_ROW, _CHART, _SPACE = 18, 110, 30
_POINTS_MAX = 400
_TICKS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_TICKS_MAX = 12


class TimeLine:
    """Draws one thing below the other."""

    def __init__(self, verdict: Verdict, figures: Figures) -> None:
        self._verdict = verdict
        self._figures = figures
        self._seconds = max(verdict.seconds, 1.0)
        self._y = 0
        self._parts: list[str] = []

    def draw(self) -> str:
        """Return the picture."""
        self._y = _SPACE
        self._draw_faults()
        self._draw_rates()
        self._draw_gaps()
        self._draw_anomalies()
        ticks = list(self._ticks())
        height = self._y + 30
        rounds = [
            f'<rect class="rest" x="{self._x(before.ended_s):.1f}" y="0" '
            f'width="{max(self._x(after.began_s) - self._x(before.ended_s), 1):.1f}" '
            f'height="{self._y}"/>'
            for before, after in zip(self._verdict.rounds, self._verdict.rounds[1:], strict=False)
        ]
        return (
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-label="time line of faults, throughput and anomalies">'
            f"{''.join(rounds + ticks + self._parts)}</svg>"
        )

    def _x(self, at_s: float) -> float:
        share = min(max(at_s / self._seconds, 0.0), 1.0)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def _text(self, x: float, y: float, text: str, kind: str = "label") -> None:
        self._parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>')

    def _bar(self, row: int, began_s: float, ended_s: float, kind: str, title: str) -> None:
        x = self._x(began_s)
        width = max(self._x(ended_s) - x, 1.5)
        self._parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{self._y + row * _ROW + 3}" '
            f'width="{width:.1f}" height="{_ROW - 6}" rx="1.5">'
            f"<title>{escape(title)}</title></rect>"
        )

    def _head(self, text: str) -> None:
        self._text(8, self._y - 8, text, "head")

    def _rows(self, names: list[str]) -> None:
        for row, name in enumerate(names):
            self._text(_LEFT - 8, self._y + row * _ROW + 13, name, "label end")

    def _draw_faults(self) -> None:
        self._head("faults")
        nodes = sorted({node for each in self._verdict.struck for node in each.nodes} | {1, 2, 3})
        self._rows([f"node {node}" for node in nodes])
        for each in self._verdict.struck:
            ended_s = self._seconds if each.ended_s is None else each.ended_s
            title = f"{each.began_s:.1f} to {ended_s:.1f} s: {each.text}"
            for node in each.nodes:
                self._bar(nodes.index(node), each.began_s, ended_s, f"f-{each.kind}", title)
        for number, kind in enumerate(FaultKind):
            x = _WIDTH - _RIGHT - 85 * (len(FaultKind) - number)
            self._parts.append(
                f'<rect class="f-{kind.value}" x="{x}" y="{self._y - 17}" width="10" height="10"/>'
            )
            self._text(x + 14, self._y - 8, kind.value)
        self._y += len(nodes) * _ROW + _SPACE

    def _draw_rates(self) -> None:
        self._head("records a second: acknowledged (area), read (line)")
        step = max(math.ceil(self._seconds / _POINTS_MAX), 1)
        acknowledged = self._by_step(self._figures.acknowledged, step)
        read = self._by_step(self._figures.read, step)
        most = max([*acknowledged, *read, 1.0])
        base = self._y + _CHART

        def points(values: list[float]) -> str:
            return " ".join(
                f"{self._x((number + 0.5) * step):.1f},{base - value / most * _CHART:.1f}"
                for number, value in enumerate(values)
            )

        first, last = self._x(0), self._x(self._seconds)
        self._parts.append(
            f'<polygon class="acknowledged" points="{first:.1f},{base} {points(acknowledged)} '
            f'{last:.1f},{base}"/><polyline class="read" points="{points(read)}"/>'
            f'<line class="axis" x1="{first:.1f}" x2="{last:.1f}" y1="{base}" y2="{base}"/>'
        )
        self._text(_LEFT - 8, self._y + 10, f"{most:.0f}", "label end")
        self._text(_LEFT - 8, base, "0", "label end")
        self._y = base + _SPACE

    def _by_step(self, counts: Mapping[int, int], step: int) -> list[float]:
        found = [0.0] * (int(self._seconds) // step + 1)
        for second, number in counts.items():
            if second // step < len(found):
                found[second // step] += number / step
        return found

    def _draw_gaps(self) -> None:
        self._head(f"unavailable: no acknowledgement for {GAP_S_MIN:g} s or more")
        self._rows([f"input-{number}" for number in range(PARTITIONS)])
        for gap in self._figures.gaps:
            title = f"{gap.began_s:.1f} to {gap.ended_s:.1f} s: {gap.seconds:.1f} s"
            self._bar(gap.partition, gap.began_s, gap.ended_s, "gap", title)
        self._y += PARTITIONS * _ROW + _SPACE

    def _draw_anomalies(self) -> None:
        self._head("anomalies, where they were found")
        for each in self._verdict.anomalies:
            x, y = self._x(each.at_s), self._y + 2
            self._parts.append(
                f'<path class="anomaly" d="M{x:.1f} {y} l6 11 h-12 z">'
                f"<title>{escape(f'{each.check}: {each.text}'[:500])}</title></path>"
            )
        if not self._verdict.anomalies:
            self._text(_LEFT, self._y + 12, "none")
        self._y += _ROW + 6

    def _ticks(self) -> Iterator[str]:
        step = next((s for s in _TICKS_S if self._seconds / s <= _TICKS_MAX), _TICKS_S[-1])
        for at_s in range(0, int(self._seconds) + 1, step):
            x = self._x(at_s)
            yield (
                f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{_SPACE - 4}" y2="{self._y}"/>'
                f'<text class="label middle" x="{x:.1f}" y="{self._y + 16}">'
                f"{at_s // 60}:{at_s % 60:02d}</text>"
            )
