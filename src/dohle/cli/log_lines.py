"""The log of a running node: one line an event on stderr, as text or as JSON.

Times are UTC. Text lines are for reading: time, level, the part of the node, the message. JSON
lines hold the same under the names ``time``, ``level``, ``logger``, ``message`` and, where there
was an exception, ``exception``.

A message may quote what a client has sent. Whatever that is, the message stays one line: what is
not printable is escaped, and what is very long is shortened. The lines of a traceback are indented,
so that none of them looks like a message.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from datetime import UTC, datetime

from dohle.cli.log_handler import LogHandler
from dohle.core.texts import printable, shorten

MESSAGE_CHARACTERS_MAX = 8192
TRACEBACK_CHARACTERS_MAX = 32768

#: The logger of single requests, which is off by default.
REQUEST_LOGGER = "dohle.request"

#: The logger of what clients may do and may not. It has Kafka's name, and its level: what is denied
#: is told, what is allowed is not, unless that logger is altered.
AUDIT_LOGGER = "kafka.authorizer.logger"

_OURS = "dohle"

logger = logging.getLogger("dohle.server")


def start_logging(*, level: str, as_json: bool, requests: bool) -> LogHandler | None:
    """Log dohle's messages from this level on to stderr, and other packages' warnings.

    Return what writes the lines, unless there is no stderr.
    """
    handler = None
    if sys.stderr is not None:
        handler = LogHandler(sys.stderr.fileno(), JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler or logging.NullHandler()]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(level.upper())
    least = logging.getLogger(_OURS).level
    logging.getLogger(AUDIT_LOGGER).setLevel(max(logging.INFO, least))
    logging.getLogger(REQUEST_LOGGER).setLevel(logging.DEBUG if requests else logging.WARNING)
    # Python itself would write these to stderr at once, and wait for its reader.
    logging.captureWarnings(True)
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_end_of_thread
    return handler


def finish_logging(handler: LogHandler | None) -> None:
    """Write what is left; if nobody reads it, let nothing that comes behind it wait either."""
    if handler is not None and not handler.finish():
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _log_unraisable(found: sys.UnraisableHookArgs) -> None:
    error = found.exc_value
    logger.error("an exception was ignored: %r", error, exc_info=error)


def _log_end_of_thread(found: threading.ExceptHookArgs) -> None:
    name = found.thread.name if found.thread is not None else "a thread"
    logger.error("%s has ended: %r", name, found.exc_value, exc_info=found.exc_value)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


class TextFormatter(logging.Formatter):
    """One line for people; a traceback follows on separate lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        part = record.name.removeprefix(f"{_OURS}.")
        message = printable(shorten(record.getMessage(), MESSAGE_CHARACTERS_MAX))
        line = f"{_time(record)} {record.levelname} {part}: {message}"
        if record.exc_info:
            trace = shorten(self.formatException(record.exc_info), TRACEBACK_CHARACTERS_MAX)
            line += "".join(f"\n  {printable(one)}" for one in trace.split("\n"))
        return line


class JsonFormatter(logging.Formatter):
    """One object per line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shorten(record.getMessage(), MESSAGE_CHARACTERS_MAX),
        }
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            fields["exception"] = shorten(trace, TRACEBACK_CHARACTERS_MAX)
        return json.dumps(fields)
