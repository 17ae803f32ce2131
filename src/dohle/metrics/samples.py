"""Quantiles of the last samples, as Kafka's own histograms have them: of a sample, not of all.

A sample may stand for many events of which only one was timed: it has a weight. Writing one down
costs a store into an array; sorting is left to whoever asks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

#: How many are kept, the newest. Kafka keeps 1,028.
SAMPLES_MAX = 1024

#: The quantiles that ready-made dashboards ask for.
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
#: As jmx_exporter's rules spell them.
QUANTILE_LABELS = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


class Samples:
    """The last samples of something: tuples of numbers, all of the same length.

    They are kept as plain numbers, side by side. Objects that outlive what is allocated around them
    would keep the memory of all that from being given back.
    """

    __slots__ = ("_kept", "_next", "_width")

    def __init__(self) -> None:
        self._kept = array("d")
        self._next = 0
        self._width = 0

    def add(self, *sample: float) -> None:
        """Keep a sample, in place of the oldest if there are many; its last number is a weight."""
        kept, start = self._kept, self._next
        self._width = width = len(sample)
        kept[start : start + width] = array("d", sample)
        self._next = (start + width) % (SAMPLES_MAX * width)

    def columns(self) -> list[tuple[float, ...]]:
        """Return the kept samples by column; nothing if there are none."""
        width = self._width
        return [tuple(self._kept[column::width]) for column in range(width)]


def quantiles(
    values: Sequence[float], weights: Sequence[float], wanted: Iterable[float] = QUANTILES
) -> list[float]:
    """Return the values below which these shares of the weight lie; there must be some values."""
    ordered = sorted(zip(values, weights, strict=True))
    below = list(accumulate(weight for _, weight in ordered))
    return [ordered[bisect_left(below, share * below[-1])][0] for share in wanted]
