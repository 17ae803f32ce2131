"""Running a command on a terminal of a given width."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 60


def run_on_terminal(columns: int, *arguments: str | Path, typed: bytes | None = None) -> list[str]:
    """Run a command on a terminal and return what it shows, line by line.

    ``typed`` is what a person types there; without it stdin is empty.
    """
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "dohle", *map(str, arguments)],
            stdin=subprocess.DEVNULL if typed is None else theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "COLUMNS": str(columns), "TERM": "dumb"},
        )
        os.close(theirs)
        if typed is not None:
            os.write(ours, typed)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            pass  # Linux says EIO where the other side has closed
        assert process.wait(timeout=DEADLINE_S) in (0, 1)
    finally:
        os.close(ours)
    return [line.rstrip() for line in shown.decode().splitlines()]
