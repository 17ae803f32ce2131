"""The machine of a node: what ``dohle.core.host`` has, and its disks."""

from __future__ import annotations

from typing import Protocol

from dohle.core.host import Host, SystemHost
from dohle.core.seams import Clock, Rng
from dohle.storage.files import FileSystem, OsFileSystem


class NodeHost(Host, Protocol):
    """A machine that a node can run on."""

    @property
    def files(self) -> FileSystem:
        """Its file system."""


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
