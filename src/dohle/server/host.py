"""The machine of a node: what ``dohle.core.host`` has, and its disks."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

from dohle.core.host import Host, SystemHost
from dohle.core.seams import Clock, Rng
from dohle.storage.files import FileSystem, OsFileSystem


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a process has used of its machine; None where the system does not tell."""

    cpu_seconds: float
    resident_bytes: int | None
    virtual_bytes: int | None
    open_files: int | None
    open_files_max: int
    start_time_seconds: float | None
    #: Of each generation: collections, collected and uncollectable objects.
    garbage: tuple[tuple[int, int, int], ...]


class ChildProcess(Protocol):
    """A process beside the node's own, which ends with it."""

    #: What it is told, and what it answers.
    requests: BinaryIO
    answers: BinaryIO

    @property
    def has_ended(self) -> bool:
        """Whether it was killed, or is gone by itself."""

    def kill(self) -> None:
        """End it at once, from any thread."""

    def end(self) -> int:
        """End it, wait for that, and return its code; minus the signal if one has ended it."""


class NodeHost(Host, Protocol):
    """A machine that a node can run on."""

    @property
    def files(self) -> FileSystem:
        """Its file system."""

    def process_usage(self) -> ProcessUsage | None:
        """Return what the process has used; it may block. None if there is no process."""

    def start_child(self, module: str) -> ChildProcess | None:
        """Run a module of this program in a process that sees the same files; it may block.

        Its argument is the number of this process. It must be called in a thread that lives as long
        as the child should. None if there are no processes; OSError if the machine has no room.
        """


class SystemNodeHost(SystemHost):
    """The machine this runs on, with its file system."""

    def __init__(
        self,
        *,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        super().__init__(clock=clock, rng=rng)
        self.files: FileSystem = files or OsFileSystem()

    def process_usage(self) -> ProcessUsage:
        """Ask the system."""
        resident = virtual = open_files = started = None
        with suppress(OSError):
            pages = _read("/proc/self/statm").split()
            virtual, resident = (int(count) * resource.getpagesize() for count in pages[:2])
            open_files = len(os.listdir("/proc/self/fd"))
            # The name in parentheses may hold anything; the 22nd field is the 20th behind it.
            ticks = int(_read("/proc/self/stat").rpartition(")")[2].split()[19])
            booted = float(_read("/proc/stat").partition("btime ")[2].split()[0])
            started = booted + ticks / os.sysconf("SC_CLK_TCK")
        return ProcessUsage(
            time.process_time(),
            resident,
            virtual,
            open_files,
            self.open_files_max(),
            started,
            tuple(
                (found["collections"], found["collected"], found["uncollectable"])
                for found in gc.get_stats()
            ),
        )

    def start_child(self, module: str) -> SystemChild | None:
        """Start another Python, which finds its modules where this one does."""
        # Another file system may be in this process only.
        if type(self.files) is not OsFileSystem or not sys.executable:
            return None
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        return SystemChild(
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            {**os.environ, "PYTHONPATH": path},
        )


class SystemChild:
    """A process of the operating system."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            # Whatever Python opens is closed by exec. To close thousands of sockets one by one
            # would take long, with the interpreter standing still.
            close_fds=False,
            # Ctrl-C is for the node alone.
            start_new_session=True,
        )
        self.requests = cast("BinaryIO", self._process.stdin)
        self.answers = cast("BinaryIO", self._process.stdout)
        self._is_killed = False

    @property
    def has_ended(self) -> bool:
        """Ask the system."""
        return self._is_killed or self._process.poll() is not None

    def kill(self) -> None:
        """Send a signal that cannot be caught."""
        self._is_killed = True
        self._process.kill()

    def end(self) -> int:
        """Kill it and wait."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self.requests, self.answers):
            # What is still in the pipe to it does not matter any more.
            with suppress(OSError):
                pipe.close()
        return code


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
