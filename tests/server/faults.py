"""Disks that fail where a test says so, and waiting for what the node does by itself.

``FaultyFileSystem`` gives real files. A fault is set for a part of a path, and holds for every call
of its kind until it is taken away. ``WatchedFileSystem`` tells of every write. ``until`` lets the
loop run, and gives up at a deadline.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dohle.core.seams import Clock
from dohle.server.host import SystemNodeHost
from dohle.server.node import Node
from dohle.storage.files import Buffer, FileSystem
from tests.server.wire import UnsyncedFile, UnsyncedFileSystem, node_config

DEADLINE_S = 20


async def until(condition: Callable[[], bool]) -> None:
    """Return when it is true; TimeoutError if that does not happen."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0)


@asynccontextmanager
async def watched_node(
    path: Path,
    fatal: list[str],
    properties: Mapping[str, str] | None = None,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Node]:
    """Run a node that tells why it cannot go on."""
    node = Node(
        node_config(path, properties),
        host=SystemNodeHost(files=fs or UnsyncedFileSystem(), clock=clock),
        on_fatal=fatal.append,
    )
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


class FaultyFileSystem(UnsyncedFileSystem):
    """Files whose reads or writes fail, or whose names cannot be made; syncs are counted."""

    def __init__(self) -> None:
        super().__init__()
        #: What fails, by a part of the path.
        self.reads: dict[str, Exception] = {}
        self.writes: dict[str, Exception] = {}
        self.names: dict[str, Exception] = {}
        #: How many more reads succeed all the same.
        self.reads_spared = 0
        #: How many calls have failed.
        self.failed = 0
        self.syncs = 0

    def check(self, faults: Mapping[str, Exception], path: str) -> None:
        """Fail if a fault is set for the path."""
        for part, error in faults.items():
            if part in path:
                self.failed += 1
                raise error

    def check_read(self, path: str) -> None:
        """Fail if a fault is set for reads of the path, and no read is spared."""
        if self.reads_spared and any(part in path for part in self.reads):
            self.reads_spared -= 1
        else:
            self.check(self.reads, path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> FaultyFile:
        """Open a file."""
        if create:
            self.check(self.names, path)
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return FaultyFile(os.open(path, flags, 0o644), path, self)

    def make_dirs(self, path: str) -> None:
        """Make a folder."""
        self.check(self.names, path)
        super().make_dirs(path)

    def sync(self) -> None:
        """Count."""
        self.syncs += 1
        super().sync()


class FaultyFile(UnsyncedFile):
    """A file on such a disk."""

    __slots__ = ("_faults",)

    def __init__(self, fd: int, path: str, fs: FaultyFileSystem) -> None:
        super().__init__(fd, path, fs)
        self._faults = fs

    def read_at(self, position: int, size: int) -> bytes:
        """Read, or fail."""
        self._faults.check_read(self._path)
        return super().read_at(position, size)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Read, or fail."""
        self._faults.check_read(self._path)
        return super().read_into(position, buffer)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write, or fail."""
        self._faults.check(self._faults.writes, self._path)
        super().write_at(position, data)

    def write_all_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write, or fail."""
        self._faults.check(self._faults.writes, self._path)
        super().write_all_at(position, buffers)


class WatchedFileSystem(UnsyncedFileSystem):
    """Tells of every write, before it is done, to whom a test has set."""

    def __init__(self) -> None:
        self.on_write: Callable[[str], None] = lambda path: None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> WatchedFile:
        """Open a file."""
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return WatchedFile(os.open(path, flags, 0o644), path, self)


class WatchedFile(UnsyncedFile):
    """A file whose writes are told of."""

    __slots__ = ("_watched",)

    def __init__(self, fd: int, path: str, fs: WatchedFileSystem) -> None:
        super().__init__(fd, path, fs)
        self._watched = fs

    def write_at(self, position: int, data: Buffer) -> None:
        """Tell, and write."""
        self._watched.on_write(self._path)
        super().write_at(position, data)

    def write_all_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Tell, and write."""
        self._watched.on_write(self._path)
        super().write_all_at(position, buffers)
