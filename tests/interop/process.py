"""``dohle start`` in a process of its own: its memory can be measured, and it can be killed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

#: Long, because a start checks every log, a stop flushes every log, and the disk may be busy.
START_DEADLINE_S = 300.0
STOP_DEADLINE_S = 300.0


class BrokerProcess:
    """A broker that keeps its data in ``folder``; it may be started again after its end."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        options: Sequence[str] = (),
        stderr: int | None = None,
        open_files_max: int | None = None,
    ) -> None:
        self._arguments = ["--data", str(folder / "data"), "--listener", f"127.0.0.1:{port}"]
        for name, value in (config or {}).items():
            self._arguments += ["-X", f"{name}={value}"]
        self._arguments += options
        self._stderr = stderr
        self._command = [sys.executable, "-m", "dohle", "start"]
        if open_files_max is not None:
            limited = f'ulimit -n {open_files_max} && exec "$0" "$@"'
            self._command = ["sh", "-c", limited, *self._command]
        self._log_path = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = f"127.0.0.1:{port}"

    def spawn(self) -> None:
        """Start the process, without waiting for it to serve."""
        assert self._process is None
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *self._arguments],
                stdout=subprocess.PIPE,
                stderr=log if self._stderr is None else self._stderr,
            )

    def await_start(self) -> None:
        """Wait until it says that it serves."""
        assert self._process is not None
        assert self._process.stdout is not None
        said = b""
        deadline = monotonic() + START_DEADLINE_S
        output = self._process.stdout.fileno()
        while not said.endswith(b"Kafka Server started\n"):
            left = max(0.0, deadline - monotonic())
            ready, _, _ = select.select([output], [], [], left)
            assert ready, f"the broker did not start in time:\n{self.log}"
            piece = os.read(output, 1000)
            assert piece, f"the broker ended:\n{self.log}"
            said += piece
        match = re.search(r"^bootstrap: +(\S+)$", said.decode(), re.MULTILINE)
        assert match is not None, said
        self.bootstrap = match[1]

    def start(self) -> Self:
        """Start and wait until it serves."""
        self.spawn()
        try:
            self.await_start()
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """End it as a loss of power to the process does: with -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to stop and return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            process.communicate(timeout=STOP_DEADLINE_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        return process.returncode

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self._log_path.read_text(errors="replace")

    @property
    def failures(self) -> list[str]:
        """What of it nobody expected: errors, and tracebacks as a whole."""
        return re.findall(
            r".* (?:ERROR|CRITICAL) .*|Traceback \(most.*\n(?:[ \t].*\n|\n)*.*", self.log
        )

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory now."""
        return self._memory("VmRSS")

    @property
    def memory_bytes_max(self) -> int:
        """The most it has ever held in memory."""
        return self._memory("VmHWM")

    def forget_memory_bytes_max(self) -> None:
        """Begin anew with the most it has held in memory."""
        assert self._process is not None
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(rf"{name}:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) * 1024
