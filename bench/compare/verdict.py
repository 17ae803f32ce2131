"""How a case of two trees is judged: better, worse, or no more than noise.

A gain is how good AFTER is in units of BEFORE: after over before for rates, before over after for
times, processor time and memory, so that more is better everywhere. What is shown is the median of
the rounds' gains. For the verdict, every round of AFTER is held against every round of BEFORE: a
case is worse if at least nine of ten such pairs have a gain below 0.95. With three rounds that is
all nine of them, so the values of the two trees lie clear of each other; with more rounds, smaller
changes show. Fewer than three rounds say nothing about noise, so nothing is worse or better then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from statistics import median

from bench.comparison.table import number
from bench.comparison.table import ratio as ratio_text

GAIN_MIN = 0.95
_AGREEMENT_MIN = 0.9
_ROUNDS_MIN = 3
#: A value of zero was too small for the clock.
_LEAST = 1e-9

COLUMNS = ("section", "case", "gain", "spread", "beside peer", "before", "after", "unit", "verdict")


class Verdict(StrEnum):
    """What the rounds say about a case."""

    WORSE = "WORSE"
    #: The median is below the bound, but the rounds do not agree on it.
    UNSURE = "noise: more rounds"
    SAME = ""
    BETTER = "better"


@dataclass(frozen=True, slots=True)
class Reading:
    """A value of one round, and how it stood beside its peer, if that is no part of dohle.

    Both are measured within the same seconds, so the second is free of the machine's moods.
    """

    value: float
    beside_peer: float | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """What a case is known by in both trees."""

    section: str
    case: str
    unit: str
    more_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One case, with a reading of each tree for every round."""

    key: Key
    before: tuple[Reading, ...]
    after: tuple[Reading, ...]

    def _gain(self, before: float, after: float) -> float:
        before, after = max(before, _LEAST), max(after, _LEAST)
        return after / before if self.key.more_is_better else before / after

    @property
    def gains(self) -> list[float]:
        """The gain of each round."""
        rounds = zip(self.before, self.after, strict=True)
        return [self._gain(before.value, after.value) for before, after in rounds]

    @property
    def gain(self) -> float:
        return median(self.gains)

    @property
    def gain_beside_peer(self) -> float | None:
        """The gain of what is left when the peer's own ups and downs are taken out."""
        pairs = self._beside_peer()
        if pairs is None:
            return None
        return median(self._gain(before, after) for before, after in zip(*pairs, strict=True))

    def _beside_peer(self) -> tuple[list[float], list[float]] | None:
        before = [one.beside_peer for one in self.before if one.beside_peer is not None]
        after = [one.beside_peer for one in self.after if one.beside_peer is not None]
        is_complete = len(before) == len(self.before) and len(after) == len(self.after)
        return (before, after) if is_complete else None

    @property
    def verdict(self) -> Verdict:
        """Judge the values; where there is a peer of another make, it must bear them out."""
        values = [one.value for one in self.before], [one.value for one in self.after]
        found = [self._judge(*values)]
        if (beside_peer := self._beside_peer()) is not None:
            found.append(self._judge(*beside_peer))
        if len(set(found)) == 1:
            return found[0]
        bad = {Verdict.WORSE, Verdict.UNSURE}
        return Verdict.UNSURE if bad.issuperset(found) else Verdict.SAME

    def _judge(self, before: Sequence[float], after: Sequence[float]) -> Verdict:
        gains = [self._gain(*pair) for pair in product(before, after)]
        enough = _AGREEMENT_MIN * len(gains)
        if len(before) >= _ROUNDS_MIN:
            if sum(gain < GAIN_MIN for gain in gains) >= enough:
                return Verdict.WORSE
            if sum(gain > 1 / GAIN_MIN for gain in gains) >= enough:
                return Verdict.BETTER
        of_rounds = [self._gain(*pair) for pair in zip(before, after, strict=True)]
        return Verdict.UNSURE if median(of_rounds) < GAIN_MIN else Verdict.SAME

    @property
    def cells(self) -> tuple[str, ...]:
        """The text of each column."""
        beside = self.gain_beside_peer
        return (
            self.key.section,
            self.key.case,
            ratio_text(self.gain),
            f"{ratio_text(min(self.gains))}–{ratio_text(max(self.gains))}",
            "" if beside is None else ratio_text(beside),
            number(median(one.value for one in self.before)),
            number(median(one.value for one in self.after)),
            self.key.unit,
            self.verdict.value,
        )


#: What one run of a section has found.
Readings = dict[Key, Reading]


def put_together(
    before: Sequence[Readings], after: Sequence[Readings]
) -> tuple[list[Case], list[Key]]:
    """Return the cases that both trees have in all rounds, and the keys of the others."""
    runs = (*before, *after)
    keys = {key: None for run in runs for key in run}
    shared = [key for key in keys if all(key in run for run in runs)]
    cases = [
        Case(key, tuple(run[key] for run in before), tuple(run[key] for run in after))
        for key in shared
    ]
    return cases, [key for key in keys if key not in set(shared)]


def markdown(cases: Sequence[Case], left: Sequence[Key]) -> str:
    """Write all cases as a table, and name those that only one of the trees has."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|---:|---:|---:|---:|---:|---|---|"]
    lines += [f"| {' | '.join(case.cells)} |" for case in cases]
    if left:
        lines += ["", "Not in both trees:", ""]
        lines += [f"- {key.section}: {key.case} [{key.unit}]" for key in left]
    return "\n".join(lines) + "\n"
