"""Errors that end a command, and the lines it writes to stderr."""

from __future__ import annotations

import sys
from typing import ClassVar


class CliError(Exception):
    """A failure to report to the user: the text says what was wrong and what to do."""

    exit_code: ClassVar = 1


class UsageError(CliError):
    """The request is invalid: an option, or a value in a configuration."""

    exit_code: ClassVar = 2


def report_error(message: str) -> None:
    """Write one line to stderr, after everything that was already written to stdout."""
    _report("error", message)


def report_warning(message: str) -> None:
    """Write one line about something that is not an error, but probably not intended."""
    _report("warning", message)


def report_note(message: str) -> None:
    """Write one line of information."""
    _report("note", message)


def _report(kind: str, message: str) -> None:
    sys.stdout.flush()
    print(f"dohle: {kind}: {message}", file=sys.stderr, flush=True)


def describe_os_error(error: OSError) -> str:
    """Return an operating system error as a sentence without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason
