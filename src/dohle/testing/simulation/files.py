"""A file system in memory that crashes, loses power, fills up and breaks when a test says so.

``SimulatedFileSystem`` stands in for :class:`dohle.storage.files.OsFileSystem`. Everything it does
follows from the calls made and the seeds passed, so a failure can be repeated.

- **Crash of the process**: :meth:`~SimulatedFileSystem.crash`. All that was written stays; open
  files and locks are gone.
- **Power cut**: :meth:`~SimulatedFileSystem.power_loss` and
  :meth:`~SimulatedFileSystem.power_loss_everything_unsynced_lost`; the rules are in
  :mod:`dohle.testing.simulation.disk`. POSIX is taken at its word: a new file needs a sync of the
  file and one of its folder.
- **Death at a chosen point**: :meth:`~SimulatedFileSystem.cut_after_bytes` and
  :meth:`~SimulatedFileSystem.cut_after_operations`. The write in which it happens is torn there.
  This and every later call raises :class:`SimulatedCrash` until one of the above is called.
- **Broken disk**: :meth:`~SimulatedFileSystem.fail`, :meth:`~SimulatedFileSystem.set_capacity`,
  :meth:`~SimulatedFileSystem.flip_bit`.
- **Threads**: :meth:`~SimulatedFileSystem.interrupt` lets something happen within an operation.
- **Forks**: :meth:`~SimulatedFileSystem.copy` is cheap, so that one workload can be crashed in
  thousands of ways.

Folders have no access rights, there are no links, and a rename stays within its folder.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random

from dohle.core.host import StreamSocket
from dohle.core.seams import Clock, ManualClock
from dohle.storage.files import Buffer, Entry, FileLost, FileStat, Lock, WholeDisk
from dohle.testing.simulation.disk import (
    Fate,
    Node,
    SimulatedFolder,
    SimulatedInode,
    SimulatedTree,
    disk_error,
    path_parts,
)
from dohle.testing.simulation.disk_faults import HARMLESS, Fault, Interruption, Operation, is_below

_ENDLESS_BYTES = 1 << 40


class SimulatedCrash(BaseException):
    """The process is dead: nothing but the test should catch this, thus no Exception."""


class SimulatedFile:
    """An open file. It dies with the process that opened it."""

    __slots__ = ("__weakref__", "_fs", "_inode", "_life", "_open", "_writable", "path")

    def __init__(
        self, fs: SimulatedFileSystem, life: object, path: str, inode: SimulatedInode, write: bool
    ) -> None:
        self._fs = fs
        self._life = life
        self._inode = inode
        self._writable = write
        self._open = True
        self.path = path

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        self._start(Operation.READ)
        if position < 0 or size < 0:
            raise disk_error(errno.EINVAL, self.path)
        return bytes(memoryview(self._inode.data)[position : position + size])

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill the buffer as far as the file goes."""
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data``, or as much as the disk takes, and raise."""
        self._start(Operation.WRITE)
        if position < 0:
            raise disk_error(errno.EINVAL, self.path)
        new = bytes(data)
        taken, failure = self._fs._admit(self.path, self._inode, position, len(new))
        if taken:
            self._inode.write(position, new[:taken])
            self._inode.mtime_ms = self._fs.clock.now_ms()
            if self._fs.observer is not None:
                self._fs.observer(Operation.WRITE, self.path, new[:taken])
        if failure is not None:
            raise failure

    def write_all_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one behind the other, as one operation."""
        self.write_at(position, b"".join(buffers))

    def size(self) -> int:
        """Return the length."""
        self._start(Operation.STAT)
        return len(self._inode.data)

    def ensure_intact(self, size: int) -> None:
        """Look at the length: nobody deletes files here behind the node's back."""
        self.ensure_length(size)

    def ensure_length(self, size: int) -> None:
        """Look at the length."""
        if len(self._inode.data) < size:
            raise FileLost.cut(self.path, len(self._inode.data), size)

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""
        self._start(Operation.TRUNCATE)
        if size < 0:
            raise disk_error(errno.EINVAL, self.path)
        self._inode.truncate(size)
        self._inode.mtime_ms = self._fs.clock.now_ms()

    def allocate(self, size: int) -> None:
        """Extend with zeros if there is room; where there is not, change nothing."""
        self._start(Operation.ALLOCATE)
        growth = size - len(self._inode.data)
        if growth > 0:
            room = self._fs._room(self.path)
            if room is not None and room < growth:
                raise disk_error(errno.ENOSPC, self.path)
            self._inode.truncate(size)
            self._inode.mtime_ms = self._fs.clock.now_ms()

    def reserve(self, position: int, size: int) -> None:
        """Do nothing: it promises nothing."""

    def sync(self) -> None:
        """Make the content safe from a power cut. One that failed spoils all later ones."""
        self._check(Operation.SYNC)
        try:
            self._fs._start(Operation.SYNC, self.path)
        except OSError:
            self._inode.sync_failed = True
            raise
        self._inode.sync()

    def send_to(self, sock: StreamSocket, position: int, size: int) -> int:
        """Send what is read there."""
        data = self.read_at(position, size)
        return sock.send(data) if data else 0

    def close(self) -> None:
        """Close. Harmless twice, and after a crash."""
        self._open = False

    def _start(self, operation: Operation) -> None:
        self._check(operation)
        self._fs._start(operation, self.path)

    def _check(self, operation: Operation) -> None:
        if self._fs._life is not self._life:
            raise SimulatedCrash
        changes = operation not in HARMLESS and operation is not Operation.SYNC
        if not self._open or (changes and not self._writable):
            raise disk_error(errno.EBADF, self.path)


class _SimulatedLock:
    """A lock that is gone when the process is."""

    __slots__ = ("_inode", "_locked")

    def __init__(self, locked: dict[int, SimulatedInode], inode: SimulatedInode) -> None:
        self._locked = locked
        self._inode = inode

    def release(self) -> None:
        self._locked.pop(id(self._inode), None)


class _SimulatedWholeDisk:
    """The disk, to be synced as a whole by one operation."""

    __slots__ = ("_fs", "_life", "_path")

    def __init__(self, fs: SimulatedFileSystem, path: str) -> None:
        self._fs = fs
        self._life = fs._life
        self._path = path

    def sync(self) -> None:
        """Sync what is below the path. A failure here or before spoils all later syncs."""
        if self._fs._life is not self._life:
            raise SimulatedCrash
        folder = self._fs._tree.folder(self._path)
        try:
            self._fs._start(Operation.SYNC, self._path)
        except OSError:
            for _, inode in folder.walk():
                inode.sync_failed |= bool(inode.unsynced)
            raise
        if any(inode.sync_failed for _, inode in folder.walk()):
            raise disk_error(errno.EIO, self._path)
        folder.settle()

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class SimulatedFileSystem:
    """A disk in memory. Paths are absolute; only ``/`` is there at first."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = ManualClock() if clock is None else clock
        #: Never called: there are descriptors enough.
        self.give_back_descriptor: Callable[[], bool] = lambda: False
        #: Every change asked for, in order, with its path; failed ones too.
        self.trace: list[tuple[Operation, str]] = []
        #: Told of every change, with the bytes of a write.
        self.observer: Callable[[Operation, str, bytes], None] | None = None
        #: Bytes that reached files, over all writes.
        self.bytes_written = 0
        self._tree = SimulatedTree(SimulatedFolder(self.clock.now_ms()))
        # Dead processes hold handles of an older life; None while the process is dead.
        self._life: object | None = object()
        self._locked: dict[int, SimulatedInode] = {}
        self._faults: list[Fault] = []
        self._interruptions: list[Interruption] = []
        self._capacities: dict[str, int] = {}
        self._bytes_limit: int | None = None
        self._operations_limit: int | None = None

    # -- what a test does to the disk ----------------------------------------------------------

    @property
    def operations(self) -> int:
        """How many changes were asked for: the range for :meth:`cut_after_operations`."""
        return len(self.trace)

    @property
    def crashed(self) -> bool:
        """Tell whether the process is dead: a limit was reached, and nobody has restarted."""
        return self._life is None

    def cut_after_bytes(self, count: int) -> None:
        """Let this many more bytes be written, then die in the write that has one more."""
        self._bytes_limit = self.bytes_written + count

    def cut_after_operations(self, count: int) -> None:
        """Let this many more changes happen, then die instead of the next."""
        self._operations_limit = self.operations + count

    def cut_never(self) -> None:
        """Take such limits back."""
        self._bytes_limit = self._operations_limit = None

    def crash(self) -> None:
        """Let the process die and another start: what was written is there, synced or not."""
        self._life = object()
        self._locked = {}
        self._bytes_limit = self._operations_limit = None

    def die(self) -> None:
        """Let the process die; every call fails until :meth:`crash` or a power cut ends that."""
        self._life = None

    def restart(self) -> None:
        """Start again after a cut: the same as :meth:`crash`."""
        self.crash()

    def power_loss(self, rng: Random, page_size: int = 512) -> None:
        """Cut the power and start again; chance decides what of the unsynced is found."""
        self._tree.root = self._tree.root.after_power_loss(Fate(rng, page_size))
        self.crash()

    def power_loss_everything_unsynced_lost(self) -> None:
        """Cut the power and start again with nothing but what was synced."""
        self._tree.root = self._tree.root.after_power_loss(Fate(None, 1))
        self.crash()

    def settle(self) -> None:
        """Make everything safe from a power cut, as if all had been synced long ago."""
        self._tree.root.settle()

    def copy(self) -> SimulatedFileSystem:
        """Fork the disk with what is unsynced, its capacities and its clock.

        Counters start at zero; limits, faults, locks and open files stay with the original.
        """
        other = SimulatedFileSystem(self.clock)
        other._tree.root = self._tree.root.fork({})
        other._capacities = dict(self._capacities)
        return other

    def fail(
        self,
        operations: Operation | Sequence[Operation],
        where: str | Callable[[str], bool],
        error_number: int,
        *,
        partial_bytes: int = 0,
        skip: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Let operations fail below a path, or where a function of the path says so.

        The first ``skip`` calls pass, then ``times`` fail (all, if None). A failing write gets its
        first ``partial_bytes`` through.
        """
        found = (operations,) if isinstance(operations, Operation) else operations
        matches = where if callable(where) else is_below(where)
        fault = Fault(frozenset(found), matches, error_number, partial_bytes, skip, times)
        self._faults.append(fault)
        return fault

    def interrupt(
        self, operation: Operation, where: str | Callable[[str], bool], step: Callable[[], object]
    ) -> None:
        """Take a step, as another thread may, when the next such operation has begun."""
        matches = where if callable(where) else is_below(where)
        self._interruptions.append(Interruption(operation, matches, step))

    def heal(self, fault: Fault | None = None) -> None:
        """Take away one fault, or all."""
        self._faults = [] if fault is None else [kept for kept in self._faults if kept is not fault]

    def set_capacity(self, mount: str, size: int | None) -> None:
        """Give the files below a path this much room in all, or (None) endless room again."""
        mount = mount.rstrip("/")
        if size is None:
            self._capacities.pop(mount, None)
        else:
            self._capacities[mount] = size

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Turn one bit of a file over, unnoticed."""
        self._tree.inode(path).own()[position] ^= 1 << bit

    def put(self, path: str, content: bytes) -> None:
        """Put a file there, safe from a power cut like all names above it."""
        folder = self._tree.root
        *above, name = path_parts(path)
        for part in above:
            folder.unsynced.clear()
            node = folder.names.get(part)
            if not isinstance(node, SimulatedFolder):
                node = folder.names[part] = SimulatedFolder(self.clock.now_ms())
            folder = node
        folder.unsynced.clear()
        folder.names[name] = SimulatedInode(bytearray(content), self.clock.now_ms())

    def files(self) -> dict[str, bytes]:
        """Return all files with their contents as a process would see them."""
        return {path: bytes(inode.data) for path, inode in sorted(self._tree.root.walk())}

    # -- what the code under test does ---------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SimulatedFile:
        """Open a file."""
        self._start(Operation.OPEN, path)
        folder, name = self._tree.locate(path)
        node = folder.names.get(name)
        if node is None:
            if not create:
                raise disk_error(errno.ENOENT, path)
            node = self._create(path, folder, name)
        if isinstance(node, SimulatedFolder):
            raise disk_error(errno.EISDIR, path)
        return SimulatedFile(self, self._life, path, node, write)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        self._start(Operation.READ, path)
        return bytes(self._tree.inode(path).data)

    def list_dir(self, path: str) -> list[Entry]:
        """Return the names in a folder, newest first: nobody should count on an order."""
        self._start(Operation.LIST, path)
        names = self._tree.folder(path).names
        return [
            Entry(name, isinstance(names[name], SimulatedFolder)) for name in reversed(list(names))
        ]

    def stat(self, path: str) -> FileStat:
        """Return size and time of last change."""
        self._start(Operation.STAT, path)
        node = self._tree.node(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, SimulatedFolder):
            return FileStat(0, node.mtime_ms, 0)
        return FileStat(len(node.data), node.mtime_ms, node.file_id)

    def exists(self, path: str) -> bool:
        """Tell whether the name is there."""
        self._start(Operation.STAT, path)
        try:
            return self._tree.node(path) is not None
        except NotADirectoryError:
            return False

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the time of last change."""
        self._start(Operation.SET_MTIME, path)
        node = self._tree.node(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        node.mtime_ms = mtime_ms

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it, each as one operation."""
        folder = self._tree.root
        so_far = ""
        parts = path_parts(path)
        for place, part in enumerate(parts, 1):
            so_far += f"/{part}"
            node = folder.names.get(part)
            if node is None:
                self._start(Operation.MAKE_DIR, so_far)
                node = SimulatedFolder(self.clock.now_ms())
                self._change_names(folder, {part: node})
            if not isinstance(node, SimulatedFolder):
                raise disk_error(errno.EEXIST if place == len(parts) else errno.ENOTDIR, so_far)
            folder = node

    def rename(self, source: str, target: str) -> None:
        """Rename in one step, within a folder."""
        self._start(Operation.RENAME, source)
        folder, name = self._tree.locate(source)
        target_folder, target_name = self._tree.locate(target)
        node = folder.names.get(name)
        if node is None:
            raise disk_error(errno.ENOENT, source)
        if target_folder is not folder:
            raise disk_error(errno.EXDEV, target)
        replaced = folder.names.get(target_name)
        if replaced is node:
            return
        if isinstance(replaced, SimulatedFolder):
            if not isinstance(node, SimulatedFolder):
                raise disk_error(errno.EISDIR, target)
            if replaced.names:
                raise disk_error(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(node, SimulatedFolder):
            raise disk_error(errno.ENOTDIR, target)
        self._change_names(folder, {name: None, target_name: node})

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._start(Operation.REMOVE, path)
        self._tree.inode(path)
        folder, name = self._tree.locate(path)
        self._change_names(folder, {name: None})

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything in it, each name as one operation."""
        folder = self._tree.folder(path)
        for name, node in list(folder.names.items()):
            if isinstance(node, SimulatedFolder):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self._start(Operation.REMOVE, path)
        above, name = self._tree.locate(path)
        self._change_names(above, {name: None})

    def sync_dir(self, path: str) -> None:
        """Make the folder's names safe from a power cut."""
        self._start(Operation.SYNC_DIR, path)
        self._tree.folder(path).unsynced.clear()

    def whole_disk(self, path: str) -> WholeDisk | None:
        """Return the disk that a folder is on, of which nothing else is relied on."""
        return _SimulatedWholeDisk(self, path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the mount that holds ``path``."""
        self._start(Operation.STAT, path)
        mount = self._mount(path)
        total = _ENDLESS_BYTES if mount is None else self._capacities[mount]
        return total, max(0, total - self._used(mount or ""))

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on a file."""
        self._start(Operation.OPEN, path)
        folder, name = self._tree.locate(path)
        node = folder.names.get(name)
        if node is None:
            node = self._create(path, folder, name)
        if isinstance(node, SimulatedFolder):
            raise disk_error(errno.EISDIR, path)
        if id(node) in self._locked:
            raise disk_error(errno.EAGAIN, path)
        self._locked[id(node)] = node
        return _SimulatedLock(self._locked, node)

    # -- how it is done ------------------------------------------------------------------------

    def _start(self, operation: Operation, path: str) -> None:
        """Begin an operation: count it, and let it meet its crash or its fault."""
        if self._life is None:
            raise SimulatedCrash
        if operation not in HARMLESS:
            if self._operations_limit is not None and self.operations >= self._operations_limit:
                self._life = None
                raise SimulatedCrash
            self.trace.append((operation, path))
            if self.observer is not None and operation is not Operation.WRITE:
                self.observer(operation, path, b"")
        for interruption in self._interruptions:
            interruption.meet(operation, path)
        # A write meets its fault later: a part of it may get through.
        if self._faults and operation is not Operation.WRITE:
            fault = self._fault(operation, path)
            if fault is not None:
                raise disk_error(fault.error_number, path)

    def _fault(self, operation: Operation, path: str) -> Fault | None:
        return next((fault for fault in self._faults if fault.strikes(operation, path)), None)

    def _admit(
        self, path: str, inode: SimulatedInode, position: int, size: int
    ) -> tuple[int, BaseException | None]:
        """Decide how much of a write gets through, and what is to be raised then."""
        taken = size
        failure: BaseException | None = None
        fault = self._fault(Operation.WRITE, path) if self._faults else None
        if fault is not None:
            taken = min(taken, fault.partial_bytes)
            failure = disk_error(fault.error_number, path)
        room = self._room(path)
        if room is not None:
            fits = max(0, len(inode.data) + room - position)
            if fits < taken:
                taken, failure = fits, disk_error(errno.ENOSPC, path)
        if self._bytes_limit is not None and self.bytes_written + taken > self._bytes_limit:
            taken, failure = self._bytes_limit - self.bytes_written, SimulatedCrash()
            self._life = None
        self.bytes_written += taken
        return taken, failure

    def _room(self, path: str) -> int | None:
        mount = self._mount(path)
        return None if mount is None else max(0, self._capacities[mount] - self._used(mount))

    def _mount(self, path: str) -> str | None:
        if not self._capacities:
            return None
        found = [mount for mount in self._capacities if is_below(mount)(path)]
        return max(found, key=len, default=None)

    def _used(self, mount: str) -> int:
        below = is_below(mount)
        return sum(len(inode.data) for path, inode in self._tree.root.walk() if below(path))

    def _create(self, path: str, folder: SimulatedFolder, name: str) -> SimulatedInode:
        self._start(Operation.CREATE, path)
        inode = SimulatedInode(bytearray(), self.clock.now_ms())
        self._change_names(folder, {name: inode})
        return inode

    def _change_names(self, folder: SimulatedFolder, names: dict[str, Node | None]) -> None:
        folder.set_names(names)
        folder.mtime_ms = self.clock.now_ms()
