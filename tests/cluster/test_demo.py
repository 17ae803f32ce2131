"""``make cluster-demo``: without a terminal, and with one on which somebody presses keys."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "cluster" / "demo.py"
DEADLINE_S = 120.0


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_without_a_terminal_it_tells_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--plain", "--seconds", "3"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    first, *lines, last = done.stdout.splitlines()
    assert first == "three nodes are starting"
    assert len(lines) >= 1
    assert "leaders 0:" in lines[-1]
    assert "in sync 18 of 18" in lines[-1]
    assert "records acknowledged" in last


class Terminal:
    """Somebody at a terminal who reads, and presses keys."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._seen = ""

    def press(self, key: str) -> None:
        os.write(self._descriptor, key.encode())

    def await_text(self, text: str) -> None:
        deadline_s = monotonic() + DEADLINE_S
        while text not in self._seen:
            assert monotonic() < deadline_s, f"{text} is not to be seen:\n{self._seen[-3000:]}"
            ready, _, _ = select.select([self._descriptor], [], [], 1)
            if ready:
                # A screen that is drawn anew is enough to look at.
                piece = os.read(self._descriptor, 65_536).decode(errors="replace")
                self._seen = self._seen[-20_000:] + piece

    def forget(self) -> None:
        self._seen = ""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_node_is_killed_by_a_key_and_heals_by_another() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    try:
        process = subprocess.Popen(
            [sys.executable, str(DEMO)],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    finally:
        os.close(theirs)
    try:
        terminal = Terminal(ours)
        terminal.await_text("all in sync")
        terminal.press("2")
        terminal.await_text("node 2 was killed with -9")
        terminal.await_text("healing")
        terminal.press("2")
        terminal.await_text("node 2 is back")
        terminal.forget()
        terminal.await_text("all in sync")
        terminal.press("q")
        terminal.await_text("records acknowledged and")
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
