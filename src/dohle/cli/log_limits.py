"""How many lines of one kind the log takes: the first of each interval, then a count.

A kind is a place in the code: however many names clients think of, there are only so many kinds.
Errors of one kind tell no more in a thousand lines than in a hundred, and whoever can cause them
must not fill a disk with them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

LINES_MAX = 100
INTERVAL_S = 60.0


@dataclass(slots=True)
class _Kind:
    """What came of one kind in the current interval."""

    template: str
    name: str
    level: int
    ends_at: float
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Suppressed:
    """How many lines of one kind were left out in an interval that is over."""

    name: str
    level: int
    template: str
    count: int


class LogLimits:
    """Decides which records become lines. Pure: the caller says what time it is."""

    def __init__(self, lines_max: int = LINES_MAX, interval_s: float = INTERVAL_S) -> None:
        self._lines_max = lines_max
        self._interval_s = interval_s
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._over_limit = 0

    @property
    def is_suppressing(self) -> bool:
        """Whether there are lines to be told of by ``take_suppressed``."""
        return self._over_limit > 0

    def admits(self, record: logging.LogRecord, now: float) -> bool:
        """Return whether the record becomes a line; else it is counted.

        Whoever asks for debug messages wants all of them, and a critical one is the last.
        """
        if record.levelno <= logging.DEBUG or record.levelno >= logging.CRITICAL:
            return True
        place = (record.pathname, record.lineno)
        kind = self._kinds.get(place)
        if kind is None or (now >= kind.ends_at and kind.seen <= self._lines_max):
            kind = self._kinds[place] = _Kind(
                str(record.msg), record.name, record.levelno, now + self._interval_s
            )
        kind.seen += 1
        if kind.seen == self._lines_max + 1:
            self._over_limit += 1
        return kind.seen <= self._lines_max

    def take_suppressed(self, now: float) -> list[Suppressed]:
        """Return what was left out of intervals that are over, and begin those anew."""
        found = []
        for place, kind in list(self._kinds.items()):
            if now < kind.ends_at:
                continue
            del self._kinds[place]
            if kind.seen > self._lines_max:
                self._over_limit -= 1
                count = kind.seen - self._lines_max
                found.append(Suppressed(kind.name, kind.level, kind.template, count))
        return found
