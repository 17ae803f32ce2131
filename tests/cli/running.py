"""What the tests of commands against a broker share: running one, feeding it, reading it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from dohle.cli.main import main

STARTED = "Kafka Server started\n"
DEADLINE_S = 60


class Command:
    """Runs commands in this process against one broker."""

    def __init__(
        self,
        bootstrap: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        folder: Path,
    ) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._input = folder / "stdin"

    def run(self, *arguments: str, code: int = 0, stdin: bytes = b"") -> tuple[str, str]:
        """Run a command, insist on its exit code, return stdout and stderr."""
        self._input.write_bytes(stdin)
        with self._input.open() as file:
            self._monkeypatch.setattr("sys.stdin", file)
            found = main(["-b", self._bootstrap, *arguments])
        shown = self._capsys.readouterr()
        assert found == code, shown.err
        return shown

    def out(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run a command that must do well and say nothing on stderr."""
        out, err = self.run(*arguments, stdin=stdin)
        assert err == ""
        return out

    def json(self, *arguments: str, stdin: bytes = b"") -> list[dict[str, Any]]:
        """Run a command with --json and return its objects."""
        lines = self.out(*arguments, "--json", stdin=stdin).splitlines()
        return [json.loads(line) for line in lines]

    def error(self, *arguments: str, code: int = 1, stdin: bytes = b"") -> str:
        """Run a command that must fail with one line, and return that."""
        out, err = self.run(*arguments, code=code, stdin=stdin)
        assert out == ""
        assert err.startswith("dohle: error: ")
        assert err.count("\n") == 1
        return err


class Started:
    """``dohle start`` as a process of its own, from the line that says it serves."""

    def __init__(
        self, *arguments: str, cwd: Path, listener: str | None = "127.0.0.1:0", log: str = "stderr"
    ) -> None:
        """Start it; without a listener on that of its configuration."""
        self._log = cwd / log
        listening = [] if listener is None else ["--listener", listener]
        with self._log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dohle", "start", *listening, *arguments],
                cwd=cwd,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self.shown: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.shown.append(line)
            if line == STARTED:
                break
        else:
            self.close()
            raise AssertionError(f"it did not start: {self.log}")

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text()

    def field(self, name: str) -> str:
        """Return what it printed behind a name."""
        (found,) = [line for line in self.shown if line.startswith(f"{name}:")]
        return found.removeprefix(f"{name}:").strip()

    @property
    def bootstrap(self) -> str:
        """Where it listens."""
        return self.field("bootstrap")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self._process.send_signal(number)
        return self._process.wait(DEADLINE_S)

    def close(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.wait(DEADLINE_S)
        assert isinstance(self._process.stdout, io.TextIOWrapper)
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def at_work(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command as a process of its own, with pipes; it is ended if it has not ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dohle", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def dohle(
    *arguments: str, stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dohle", *arguments],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "DOHLE_BOOTSTRAP"},
        timeout=DEADLINE_S,
    )


def lines(values: Iterable[object]) -> bytes:
    """Return values as lines."""
    return "".join(f"{value}\n" for value in values).encode()
