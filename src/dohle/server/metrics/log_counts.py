"""Counting the lines that are logged, by level."""

from __future__ import annotations

import logging

_LOGGER = "dohle"
_LEVELS = ("WARNING", "ERROR", "CRITICAL")


class LogCounts(logging.Handler):
    """A handler that only counts. It is there from ``start`` to ``stop``."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.by_level = dict.fromkeys(_LEVELS, 0)

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line."""
        if record.levelname in self.by_level:
            self.by_level[record.levelname] += 1

    def start(self) -> None:
        """Begin to count."""
        logging.getLogger(_LOGGER).addHandler(self)

    def stop(self) -> None:
        """Count no more."""
        logging.getLogger(_LOGGER).removeHandler(self)
