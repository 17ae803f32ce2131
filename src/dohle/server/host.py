"""The machine of a node: what ``dohle.core.host`` has, and its disks."""

from __future__ import annotations

import gc
import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

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


class NodeHost(Host, Protocol):
    """A machine that a node can run on."""

    @property
    def files(self) -> FileSystem:
        """Its file system."""

    def process_usage(self) -> ProcessUsage | None:
        """Return what the process has used; it may block. None if there is no process."""


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


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
