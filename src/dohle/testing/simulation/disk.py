"""The disk below :mod:`dohle.testing.simulation.files`: what is seen, and what a power cut leaves.

Files and folders hold what a running process sees. Beside it each keeps the changes since its last
sync, with what is needed to undo them; a sync forgets these. After a power cut a file's changes
are undone, and as many of them done again as the cut lets through:

- each write is kept, lost, or torn: then any of its pages may be kept, whatever their order. A
  lost page reads as what was there before, or as zeros where the file had not reached;
- the length may have reached the disk without the data, which is then zeros;
- a cut of the file is kept if anything written after it is, because file systems journal lengths
  in order;
- of a folder's changes a prefix is kept, one rename being one change. A file whose name is lost is
  lost with its content, however well that was synced.

Forks share file content until one of them writes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from enum import Enum
from itertools import count
from random import Random
from typing import NamedTuple

_file_ids = count(1)


class _Change(NamedTuple):
    """One write, or with ``data`` None one change of length, and how to undo it."""

    position: int
    data: bytes | None
    size: int
    old: bytes
    old_size: int


class SimulatedInode:
    """A file: its bytes as they are seen, and the changes that a power cut may take back."""

    __slots__ = ("_shared", "data", "file_id", "mtime_ms", "sync_failed", "unsynced")

    def __init__(self, data: bytearray, mtime_ms: int) -> None:
        self.file_id = next(_file_ids)
        self.data = data
        self.mtime_ms = mtime_ms
        self.unsynced: list[_Change] = []
        #: After a failed sync the kernel takes the pages for clean: a later one saves nothing.
        self.sync_failed = False
        self._shared = False

    def fork(self) -> SimulatedInode:
        """Return a file of the same content that can go its own way."""
        self._shared = True
        other = SimulatedInode(self.data, self.mtime_ms)
        other.file_id = self.file_id
        other.unsynced = self.unsynced.copy()
        other.sync_failed = self.sync_failed
        other._shared = True
        return other

    def own(self) -> bytearray:
        """Return the content for changing it."""
        if self._shared:
            self.data = bytearray(self.data)
            self._shared = False
        return self.data

    def write(self, position: int, new: bytes) -> None:
        """Put bytes at a position; a hole before it is zeros."""
        data = self.own()
        old_size = len(data)
        end = position + len(new)
        old = bytes(data[position:end]) if position < old_size else b""
        _put(data, position, new)
        self.unsynced.append(_Change(position, new, max(end, old_size), old, old_size))

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        data = self.own()
        old_size = len(data)
        if size == old_size:
            return
        self.unsynced.append(_Change(size, None, size, bytes(data[size:]), old_size))
        _set_size(data, size)

    def sync(self) -> None:
        """Make what is seen the content that a power cut leaves."""
        if not self.sync_failed:
            self.unsynced.clear()

    def after_power_loss(self, fate: Fate) -> SimulatedInode:
        """Return the file as the next start finds it."""
        if not self.unsynced:
            found = self.fork()
            found.sync_failed = False
            return found
        data = bytearray(self.data)
        for change in reversed(self.unsynced):
            del data[change.old_size :]
            data[change.position : change.position + len(change.old)] = change.old
        fate.replay(data, self.unsynced)
        return SimulatedInode(data, self.mtime_ms)


#: One change of a folder: names, each with what it meant before and what it means now.
_Edit = list[tuple[str, "Node | None", "Node | None"]]


class SimulatedFolder:
    """A folder: its names as they are seen, and the changes that a power cut may take back."""

    __slots__ = ("mtime_ms", "names", "unsynced")

    def __init__(self, mtime_ms: int) -> None:
        self.mtime_ms = mtime_ms
        self.names: dict[str, Node] = {}
        self.unsynced: list[_Edit] = []

    def set_names(self, names: dict[str, Node | None]) -> None:
        """Give names another meaning, or none, in one step."""
        edit: _Edit = []
        for name, node in names.items():
            edit.append((name, self.names.get(name), node))
            self._set(name, node)
        self.unsynced.append(edit)

    def _set(self, name: str, node: Node | None) -> None:
        if node is None:
            self.names.pop(name, None)
        else:
            self.names[name] = node

    def fork(self, forked: dict[int, Node]) -> SimulatedFolder:
        """Return the same tree, free to go its own way. ``forked`` keeps one node one."""
        other = SimulatedFolder(self.mtime_ms)
        forked[id(self)] = other
        other.names = {name: _fork(node, forked) for name, node in self.names.items()}
        other.unsynced = [
            [
                (name, old and _fork(old, forked), new and _fork(new, forked))
                for name, old, new in edit
            ]
            for edit in self.unsynced
        ]
        return other

    def after_power_loss(self, fate: Fate) -> SimulatedFolder:
        """Return the tree as the next start finds it."""
        found = SimulatedFolder(self.mtime_ms)
        found.names = dict(self.names)
        kept = fate.kept_edits(len(self.unsynced))
        for edit in reversed(self.unsynced[kept:]):
            for name, old, _ in reversed(edit):
                found._set(name, old)
        # Sorted, so that the same seed gives the same loss whatever the history of the names.
        for name in sorted(found.names):
            found.names[name] = found.names[name].after_power_loss(fate)
        return found

    def walk(self, path: str = "") -> Iterator[tuple[str, SimulatedInode]]:
        """Yield every file below with its path."""
        for name, node in self.names.items():
            below = f"{path}/{name}"
            if isinstance(node, SimulatedFolder):
                yield from node.walk(below)
            else:
                yield below, node

    def settle(self) -> None:
        """Make the whole tree what a power cut leaves."""
        self.unsynced.clear()
        for node in self.names.values():
            if isinstance(node, SimulatedFolder):
                node.settle()
            else:
                node.unsynced.clear()
                node.sync_failed = False


Node = SimulatedInode | SimulatedFolder


class SimulatedTree:
    """All folders and files, found by their paths."""

    def __init__(self, root: SimulatedFolder) -> None:
        self.root = root

    def node(self, path: str) -> Node | None:
        """Return what is at a path, if anything."""
        node: Node | None = self.root
        for part in path_parts(path):
            if node is None:
                return None
            if not isinstance(node, SimulatedFolder):
                raise disk_error(errno.ENOTDIR, path)
            node = node.names.get(part)
        return node

    def inode(self, path: str) -> SimulatedInode:
        """Return the file at a path."""
        node = self.node(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, SimulatedFolder):
            raise disk_error(errno.EISDIR, path)
        return node

    def folder(self, path: str) -> SimulatedFolder:
        """Return the folder at a path."""
        node = self.node(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if not isinstance(node, SimulatedFolder):
            raise disk_error(errno.ENOTDIR, path)
        return node

    def locate(self, path: str) -> tuple[SimulatedFolder, str]:
        """Return the folder a path is in, and the name there."""
        parts = path_parts(path)
        if not parts:
            raise disk_error(errno.EINVAL, path)
        return self.folder("/".join(parts[:-1])), parts[-1]


def path_parts(path: str) -> list[str]:
    """Return the names that a path is made of."""
    return [part for part in path.split("/") if part]


def disk_error(number: int, path: str) -> OSError:
    """Return the error of a disk that fails in this way."""
    # OSError itself picks FileNotFoundError, BlockingIOError and their like by the number.
    return OSError(number, os.strerror(number), path)


def _fork(node: Node, forked: dict[int, Node]) -> Node:
    found = forked.get(id(node))
    if found is None:
        found = node.fork(forked) if isinstance(node, SimulatedFolder) else node.fork()
        forked[id(node)] = found
    return found


class _Mood(Enum):
    """How a power cut treats one file: chance write by write would hardly show the pure ways."""

    ALL_LOST = 0
    ALL_KEPT = 1
    PREFIX = 2
    MIXED = 3


class Fate:
    """Decides what a power cut takes. Without chance it takes everything that was not synced."""

    def __init__(self, rng: Random | None, page_size: int) -> None:
        self._rng = rng
        self._page_size = page_size

    def kept_edits(self, count: int) -> int:
        """Return how many of a folder's changes are kept."""
        if self._rng is None or not count:
            return 0
        return self._rng.choice((0, count, self._rng.randint(0, count)))

    def replay(self, data: bytearray, changes: list[_Change]) -> None:
        """Do those of a file's changes again that got through."""
        rng = self._rng
        if rng is None:
            return
        mood = rng.choice(tuple(_Mood))
        if mood is _Mood.ALL_LOST:
            return
        whole = rng.randint(0, len(changes)) if mood is _Mood.PREFIX else len(changes)
        for index, change in enumerate(changes):
            if mood is _Mood.MIXED:
                if not self._replay_perhaps(rng, data, change):
                    return
            elif index < whole:
                _replay_whole(data, change)
            else:
                if change.data is not None:
                    self._replay_pages(rng, data, change.position, change.data)
                return

    def _replay_perhaps(self, rng: Random, data: bytearray, change: _Change) -> bool:
        """Keep, lose or tear one change; False if nothing after it may be kept."""
        kept = rng.choice((True, True, False))
        if change.data is None:
            if kept:
                _replay_whole(data, change)
            return kept or change.size > change.old_size
        if kept and rng.random() < 0.5:
            _replay_whole(data, change)
        elif kept:
            self._replay_pages(rng, data, change.position, change.data)
        if len(data) < change.size and rng.random() < 0.3:
            _set_size(data, change.size)
        return True

    def _replay_pages(self, rng: Random, data: bytearray, position: int, new: bytes) -> None:
        end = position + len(new)
        start = position
        while start < end:
            page_end = min(end, (start // self._page_size + 1) * self._page_size)
            if rng.random() < 0.5:
                _put(data, start, new[start - position : page_end - position])
            start = page_end


def _replay_whole(data: bytearray, change: _Change) -> None:
    if change.data is None:
        _set_size(data, change.size)
    else:
        _put(data, change.position, change.data)


def _put(data: bytearray, position: int, new: bytes) -> None:
    if position > len(data):
        _set_size(data, position)
    data[position : position + len(new)] = new


def _set_size(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
