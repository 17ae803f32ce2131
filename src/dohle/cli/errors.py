"""What ends a command early, and the lines it leaves on stderr."""

from __future__ import annotations

import sys


class CliError(Exception):
    """A failure to tell the user of: the text says what was wrong and what to do."""


def report_error(message: str) -> None:
    """Write one line to stderr, behind everything that was already written to stdout."""
    sys.stdout.flush()
    print(f"dohle: error: {message}", file=sys.stderr, flush=True)


def describe_os_error(error: OSError) -> str:
    """Return an operating system's error as a sentence without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason
