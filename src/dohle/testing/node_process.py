"""One node of a test's cluster, as a process of its own: dohle's, or one that is run likewise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

#: Without the end of its line: the log goes to the same file, and may come in between.
_STARTED = "Kafka Server started"
_LOOK_AGAIN_S = 0.02
#: How much of a log an error shows.
_TAIL_LINES = 20


class NodeFailed(Exception):
    """A node ended by itself, or did not do something in time; the text ends with its log."""


def dohle_command(config: Path) -> list[str]:
    """Return how a node of dohle is started that ends with whoever has started it."""
    return [
        *(sys.executable, "-m", "dohle", "start"),
        *("--config", str(config), "--stop-at-eof"),
    ]


class NodeProcess:
    """A process that may be started again after its end.

    One of dohle ends with this one at the latest: its standard input ends then.
    """

    def __init__(self, node_id: int, command: Sequence[str], log: Path) -> None:
        self.id = node_id
        self._command = command
        self._log = log
        self._log_begin = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self.is_paused = False

    @property
    def is_running(self) -> bool:
        """Whether there is a process, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of its process."""
        if self._process is None or not self.is_running:
            raise RuntimeError(f"node {self.id} is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it has printed and logged, in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def spawn(self) -> None:
        """Start the process, without waiting for it to serve."""
        if self.is_running:
            raise RuntimeError(f"node {self.id} is running")
        self._drop_lifeline()
        reading, self._lifeline = os.pipe()
        try:
            with self._log.open("ab") as log:
                self._log_begin = log.tell()
                self._process = subprocess.Popen(
                    self._command,
                    stdin=reading,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C is for the test, which then ends its nodes.
                    start_new_session=True,
                )
        finally:
            os.close(reading)

    def await_start(self, deadline_s: float) -> None:
        """Wait until it serves; ``deadline_s`` is a moment of the monotonic clock."""
        while _STARTED not in self._said():
            if not self.is_running:
                raise self._failure("ended before it served")
            if monotonic() > deadline_s:
                raise self._failure("did not start in time")
            sleep(_LOOK_AGAIN_S)

    def _said(self) -> str:
        return self._log.read_bytes()[self._log_begin :].decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        if self._process is None or not self.is_running:
            raise RuntimeError(f"node {self.id} is not running")
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stop its clock: to others it is there, and silent."""
        self.signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        """End it as a loss of power to the process does, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.is_paused = False

    def await_end(self, deadline_s: float) -> int:
        """Wait until it has ended, and return its exit code."""
        if self._process is None:
            raise RuntimeError(f"node {self.id} has not been started")
        try:
            return self._process.wait(max(deadline_s - monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise self._failure("did not stop in time") from None

    def await_clean_end(self, deadline_s: float) -> None:
        """Wait until it has ended as one that was asked to stop."""
        code = self.await_end(deadline_s)
        if code:
            raise self._failure(f"ended with exit code {code}")

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self._drop_lifeline()

    def _drop_lifeline(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _failure(self, what: str) -> NodeFailed:
        return NodeFailed(f"node {self.id} {what}; its log ends with:\n{self.tail}")

    @property
    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(f"  {line}" for line in self.log.splitlines()[-_TAIL_LINES:])
