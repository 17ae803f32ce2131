"""Where dohle's time goes in a part: py-spy samples its processes during a turn.

py-spy is not among the dependencies; ``pip install py-spy`` where it is wanted.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.processes import folder

_RATE = 250
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^()]*?)(?::\d+)?\)$")
_SHOWN = 3
_EVERYTHING = 0.85
#: A thread of the pool that has nothing to do.
_IDLE = re.compile(r"_worker \(concurrent/futures/thread\.py:\d+\)$")
_WRITE_S_MAX = 60


class NoProfiler(Exception):
    """py-spy is not there."""


class Stacks(NamedTuple):
    """Stacks as py-spy writes them: frames, outermost first, and how often they were sampled."""

    counts: Counter[tuple[str, ...]]

    @classmethod
    def parse(cls, text: str) -> Stacks:
        """Read lines of ``frame;frame;frame count``."""
        counts: Counter[tuple[str, ...]] = Counter()
        for line in text.splitlines():
            frames, _, count = line.rpartition(" ")
            if frames and not _IDLE.search(frames):
                counts[tuple(frames.split(";"))] += int(count)
        return cls(counts)

    def largest(self) -> list[tuple[str, float]]:
        """Return the functions that spend most time themselves, with the share of all samples."""
        return self._shares(lambda frames: {_function(frames[-1])})

    def largest_with_calls(self) -> list[tuple[str, float]]:
        """Return the functions below which most time is spent, with the share of all samples."""
        return self._shares(lambda frames: set(map(_function, frames)))

    def _shares(self, places: Callable[[tuple[str, ...]], set[str]]) -> list[tuple[str, float]]:
        found: Counter[str] = Counter()
        for frames, count in self.counts.items():
            for name in places(frames):
                found[name] += count
        total = sum(self.counts.values())
        return [(name, count / total) for name, count in found.most_common()]


def _function(frame: str) -> str:
    match = _FRAME.match(frame)
    return f"{match['function']} ({match['file']})" if match else frame


def summary(title: str, stacks: Stacks) -> str:
    """Name the functions that take most of a process's time."""
    # Functions that are below nearly every sample, like the event loop, say nothing.
    parts = [(name, share) for name, share in stacks.largest_with_calls() if share < _EVERYTHING]
    return "\n".join(
        [
            f"{title}: {sum(stacks.counts.values()):,} samples of dohle",
            "  own time:",
            *(f"  {share:6.1%}  {name}" for name, share in stacks.largest()[:_SHOWN]),
            "  with what is called:",
            *(f"  {share:6.1%}  {name}" for name, share in parts[: 4 * _SHOWN]),
        ]
    )


def observe(pids: Mapping[str, int], load: Callable[[], object]) -> dict[str, Stacks]:
    """Sample processes while they are loaded."""
    spy = Path(sys.executable).with_name("py-spy")
    command = str(spy) if spy.exists() else shutil.which("py-spy")
    if command is None:
        raise NoProfiler("py-spy is not installed: pip install py-spy")
    with folder() as path:
        outs = {label: Path(path) / str(pid) for label, pid in pids.items()}
        spies = [_spy(command, pid, outs[label]) for label, pid in pids.items()]
        try:
            load()
            for each in spies:
                each.send_signal(signal.SIGINT)
            for each in spies:
                each.wait(_WRITE_S_MAX)
        finally:
            for each in spies:
                each.kill()
                each.wait()
        return {label: Stacks.parse(out.read_text()) for label, out in outs.items()}


def _spy(command: str, pid: int, out: Path) -> subprocess.Popen[bytes]:
    options = ["--pid", str(pid), "--rate", str(_RATE), "--format", "raw"]
    return subprocess.Popen(
        [command, "record", *options, "--output", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
