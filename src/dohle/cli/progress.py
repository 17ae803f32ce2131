"""The progress of a long command: one line on stderr that is overwritten, if that is a terminal.

Nothing is shown if other output goes to the same terminal.
"""

from __future__ import annotations

import sys
import time

_PERIOD_S = 0.25
#: Clears what is left of a longer line before.
_CLEAR = "\x1b[K"


class Progress:
    """Counts records and bytes, and prints the counts now and then."""

    def __init__(self, *, is_shown: bool, bytes_in_all: int | None = None) -> None:
        """With ``bytes_in_all`` it tells how long the rest will take."""
        self.records = 0
        self._bytes = 0
        self._bytes_in_all = bytes_in_all
        self._is_shown = is_shown and sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _PERIOD_S

    def add(self, records: int, size: int) -> None:
        """Count."""
        self.records += records
        self._bytes += size
        if self._is_shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PERIOD_S
            self._show(is_end=False)

    def end(self) -> None:
        """Print the final counts."""
        if self._is_shown:
            self._show(is_end=True)

    def _show(self, *, is_end: bool) -> None:
        elapsed_s = time.monotonic() - self._began
        line = describe(
            self.records, self._bytes, elapsed_s, None if is_end else self._bytes_in_all
        )
        print(f"\r{line}{_CLEAR}", end="\n" if is_end else "", file=sys.stderr, flush=True)


def describe(records: int, size: int, elapsed_s: float, size_in_all: int | None) -> str:
    """Return counts, the rate and, if it is known how much there is, the time that is left."""
    parts = [f"{records:,} records", f"{size / 1e6:,.1f} MB"]
    if elapsed_s > 0 and size:
        parts.append(f"{size / 1e6 / elapsed_s:,.1f} MB/s")
        if size_in_all:
            left_s = max(size_in_all - size, 0) * elapsed_s / size
            parts.append(f"{min(100 * size // size_in_all, 100)} %")
            parts.append(f"{_duration(left_s)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
