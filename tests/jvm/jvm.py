"""Java programs: many in one virtual machine, or one in a machine of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

#: Long, for a busy machine: nothing here takes more than some seconds.
DEADLINE_S = 60.0

#: Quick to start rather than quick to run.
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m"]

#: Some tools leave their connections to themselves, which then complain of brokers that are gone.
LOG_LEVELS = [
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.NetworkClient=error",
]


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed, without empty lines."""
        return [line for line in self.out.splitlines() if line.strip()]

    @property
    def table(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.lines]


def run_alone(classpath: str, main: str, *arguments: str, stdin: str = "") -> Ran:
    """Run a program in a virtual machine of its own: one that ends it, or whose signals matter."""
    command = ["java", *QUICK, *LOG_LEVELS, "-cp", classpath, main, *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


class Jvm:
    """A virtual machine that runs one program after the other (``java/Shell.java``).

    One that has not come to its end gives way to the next, and takes its machine along.
    """

    def __init__(self, classpath: str, folder: Path, options: Sequence[str] = ()) -> None:
        self._errors = folder / "jvm.log"
        self._command = ["java", *QUICK, *LOG_LEVELS, *options, "-cp", classpath, "Shell"]
        self._process = self._start()
        self._is_busy = False

    def _start(self) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as log:
            return subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def run(self, main: str, *arguments: str, stdin: str = "") -> Ran:
        """Run a program to its end, whatever that is."""
        self.begin(main, *arguments, stdin=stdin)
        return self.finish()

    def begin(self, main: str, *arguments: str, stdin: str = "") -> None:
        """Start a program; the next call must be ``finish``."""
        if self._is_busy:
            self.__exit__(None, None, None)
            self._process = self._start()
        self._is_busy = True
        request = {"main": main, "args": arguments, "stdin": stdin}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self, deadline_s: float = DEADLINE_S) -> Ran:
        """Wait for the end of the program that was begun."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        give_up = monotonic() + deadline_s
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, give_up - monotonic()))
            assert ready, f"a Java program did not end in time\n{self._state()}"
            piece = os.read(descriptor, 1 << 16)
            assert piece, f"the virtual machine ended\n{self._errors.read_text()}"
            answer += piece
        self._is_busy = False
        return Ran(**json.loads(answer))

    def _state(self) -> str:
        """Return what its threads are at, and what they have complained of."""
        jstack = ["jstack", str(self._process.pid)]
        stacks = subprocess.run(jstack, capture_output=True, text=True, check=False)
        return f"{stacks.stdout}\n{self._errors.read_text()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
