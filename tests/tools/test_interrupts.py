"""Tests may be started in the background: they ignore SIGINT then, but what they start does not."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, subprocess, sys
{before}
from tests.interrupts import let_children_be_interrupted
let_children_be_interrupted()
child = [sys.executable, "-c", "import signal; signal.raise_signal(signal.SIGINT)"]
print(subprocess.run(child, stderr=subprocess.DEVNULL).returncode)
signal.raise_signal(signal.SIGINT)
print("went on")
"""


def outcome(before: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_where_sigint_is_ignored_it_ends_only_what_the_tests_start() -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    assert outcome(ignored) == (0, [str(-signal.SIGINT), "went on"])


def test_where_it_is_not_it_ends_both() -> None:
    assert outcome("") == (-signal.SIGINT, [str(-signal.SIGINT)])
