"""The progress of a long command: one line on stderr that is overwritten, if that is a terminal.

Nothing is shown if other output goes to the same terminal.
"""

from __future__ import annotations

import sys
import time

_PERIOD_S = 0.25


class Progress:
    """Counts records and bytes, and prints the counts now and then."""

    def __init__(self, *, is_shown: bool) -> None:
        self.records = 0
        self._bytes = 0
        self._is_shown = is_shown and sys.stderr.isatty()
        self._next = time.monotonic() + _PERIOD_S

    def add(self, records: int, size: int) -> None:
        """Count."""
        self.records += records
        self._bytes += size
        if self._is_shown and time.monotonic() >= self._next:
            self._show("\r")

    def end(self) -> None:
        """Print the final counts."""
        if self._is_shown:
            self._show("\n")

    def _show(self, end: str) -> None:
        self._next = time.monotonic() + _PERIOD_S
        line = f"\r{self.records:,} records, {self._bytes / 1e6:,.1f} MB"
        print(line, end=end, file=sys.stderr, flush=True)
