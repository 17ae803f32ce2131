"""The processes under test: started, measured from outside, and ended whatever happens."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple, Self

_START_S_MAX = 60
_STOP_S_MAX = 120
_MEMORY_FOLDER = "/dev/shm"


class Sample(NamedTuple):
    """What one load has cost: the time, and the processor time of the processes that served it."""

    seconds: float
    cpu_s: float
    size: float
    requests: float

    @property
    def mb_per_s(self) -> float:
        return self.size / self.seconds / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / self.size * 1e9

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_s / self.requests * 1e6

    def __str__(self) -> str:
        return f"{self.mb_per_s:,.0f} MB/s, {self.cpu_us_per_request:,.0f} µs/request"


def middle(samples: list[Sample]) -> Sample:
    """Return the median of every number."""
    return Sample(*(median(column) for column in zip(*samples, strict=True)))


def rounds_of(cases: dict[str, Callable[[], Sample]], rounds: int) -> dict[str, Sample]:
    """Run the cases in turn, so that a slow minute hits all of them; return medians."""
    found: dict[str, list[Sample]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(case())
    return {name: middle(samples) for name, samples in found.items()}


class Served:
    """Whatever serves at an address, seen from outside: one process, or several together."""

    address: str
    #: How long all loads that were measured so far have taken.
    measured_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        """Processor time of all its threads so far."""
        raise NotImplementedError

    def measure(self, size: int, requests: int, load: Callable[[], object]) -> Sample:
        """Apply a load and tell what it has cost."""
        cpu, start = self.cpu_s, time.perf_counter()
        load()
        sample = Sample(time.perf_counter() - start, self.cpu_s - cpu, size, requests)
        self.measured_s += sample.seconds
        return sample


class Measured(Served):
    """A process that serves, with those that it has started."""

    _process: subprocess.Popen[Any]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def cpu_s(self) -> float:
        """Processor time of all its threads so far, and of the processes it has started.

        This is the sum that /proc/PID/stat has in hundredths of a second, in nanoseconds: the clock
        that clock_getcpuclockid(3) names for another process. Only of processes that have ended
        there is nothing finer.
        """
        ended_s = self._ended_children_cpu_s()
        while True:
            running_s = 0.0
            for pid in (self.pid, *self._children()):
                with suppress(OSError):
                    running_s += time.clock_gettime((~pid << 3) | 2)
            before_s, ended_s = ended_s, self._ended_children_cpu_s()
            if before_s == ended_s:
                return running_s + ended_s

    def _ended_children_cpu_s(self) -> float:
        # The name in parentheses may hold anything; the 16th field is the 14th behind it.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")

    def _children(self) -> list[int]:
        found = []
        for listed in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(pid) for pid in listed.read_text().split()]
        return found

    @property
    def rss_mb(self) -> float:
        """The memory it has now."""
        return self._memory_mb("status", "VmRSS")

    def _memory_mb(self, file: str, field: str) -> float:
        """Add up a line of a file in /proc over it and the processes it has started."""
        found = _kilobytes(self.pid, file, field)
        for pid in self._children():
            with suppress(OSError, LookupError):
                found += _kilobytes(pid, file, field)
        return found * 1024 / 1e6


def _kilobytes(pid: int, file: str, field: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise LookupError(f"/proc/{pid}/{file} has no {field}")


class Watched(Served):
    """What is under test, with its processes."""

    @property
    def processes(self) -> Mapping[str, Measured]:
        """Its processes, by name."""
        raise NotImplementedError


class Process(Measured):
    """A Python module run as a process that prints one line, its address, when it serves."""

    def __init__(self, module: str, *arguments: str, ends_cleanly: bool = False) -> None:
        self._ends_cleanly = ends_cleanly
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.address = self._first_line()
        except BaseException:
            self.stop()
            raise

    def _first_line(self) -> str:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], _START_S_MAX)[0]:
            raise TimeoutError(f"nothing was heard of a process within {_START_S_MAX} s")
        line: str = out.readline().strip()
        if not line:
            raise RuntimeError("a process that was to be measured has ended at once")
        return line

    def stop(self) -> None:
        """End it: with SIGKILL, or with SIGTERM if it has to shut down cleanly."""
        process = self._process
        if process.poll() is None:
            if self._ends_cleanly:
                process.terminate()
            else:
                process.kill()
            try:
                process.wait(_STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@contextmanager
def folder(*, in_memory: bool = False) -> Iterator[str]:
    """Make a folder that is removed with the block; in memory if asked for and available."""
    place = _MEMORY_FOLDER if in_memory and os.path.isdir(_MEMORY_FOLDER) else None
    path = tempfile.mkdtemp(prefix="dohle-bench-", dir=place)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def broker(**settings: str) -> Iterator[Process]:
    """Run a broker in a folder of its own; dots in settings are ``_``."""
    with folder() as own, broker_in(f"{own}/data", ends_cleanly=False, **settings) as found:
        yield found


def broker_in(path: str, *, ends_cleanly: bool = True, **settings: str) -> Process:
    """Run a broker in a folder that is kept."""
    overrides = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    return Process("bench.run_broker", path, *overrides, ends_cleanly=ends_cleanly)


@contextmanager
def ceiling() -> Iterator[Process]:
    """Run the bare loops."""
    with folder() as path, Process("bench.broker.ceiling", f"{path}/file") as found:
        yield found


def touch_memory(size: int) -> None:
    """Fill this much of the page cache and give it back.

    On a virtual machine the first use of a page of memory costs many times what the next does, and
    would be charged to whoever happens to come first.
    """
    block = bytes(1 << 20)
    with folder() as path, open(f"{path}/file", "wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(block)
