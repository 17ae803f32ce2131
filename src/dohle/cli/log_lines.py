"""The log of a running node: one line an event on stderr, as text or as JSON.

Times are UTC. Text lines are for reading: time, level, the part of the node, the message. JSON
lines hold the same under the names ``time``, ``level``, ``logger``, ``message`` and, where there
was an exception, ``exception``.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

#: The logger of single requests, which is off by default.
REQUEST_LOGGER = "dohle.request"

_OURS = "dohle"


def start_logging(*, level: str, as_json: bool, requests: bool) -> None:
    """Log dohle's messages from this level on to stderr, and other packages' warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(level.upper())
    logging.getLogger(REQUEST_LOGGER).setLevel(logging.DEBUG if requests else logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


class TextFormatter(logging.Formatter):
    """One line for people; a traceback follows on separate lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        part = record.name.removeprefix(f"{_OURS}.")
        line = f"{_time(record)} {record.levelname} {part}: {record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """One object per line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)
