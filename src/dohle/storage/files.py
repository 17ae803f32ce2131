"""The file-system seam: every byte that storage reads or writes goes through here.

Storage sees paths as plain strings and files without a cursor: each read and write names its
position. ``OsFileSystem`` is the machine's own; ``dohle.testing.simulation.files`` is one in memory
that loses unsynced writes, tears them, fills up and flips bits.

What a caller may rely on, and no more:

- a write that returned is seen by every later read, and survives the death of the process;
- it survives a power cut only after ``File.sync`` returned, or ``WholeDisk.sync``;
- a name that was created, renamed or removed survives a power cut only after ``sync_dir`` of its
  folder returned, or ``WholeDisk.sync``;
- ``rename`` replaces its target in one step;
- a write that raised may have written any part of its bytes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar, cast

from dohle.storage.whole_disk import open_whole_disk

if TYPE_CHECKING:
    from dohle.core.host import StreamSocket

T = TypeVar("T")

#: What ``write_at`` takes: anything with bytes in it.
Buffer = bytes | bytearray | memoryview

# The kernel takes at most this many buffers in one call.
_IOV_MAX = 1024

#: There is no descriptor left, in this process or in the system. That is no failure of a disk.
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's call, which Python does not offer: ``posix_fallocate`` makes files longer."""
    if sys.platform != "linux" or sys.maxsize < 2**63 - 1:
        return None
    function = ctypes.CDLL(None).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    return cast("Callable[[int, int, int, int], int]", function)


_fallocate = _find_fallocate()
_KEEP_SIZE = 1


class FileStat(NamedTuple):
    """What is known about a file without opening it."""

    size: int
    mtime_ms: int
    #: Another file has another one, also if it gets the same name.
    file_id: int


class Entry(NamedTuple):
    """One name in a folder."""

    name: str
    is_dir: bool


class FileLost(FileNotFoundError):
    """A file was cut or deleted by somebody else while it was in use."""

    @classmethod
    def cut(cls, path: str, size: int, expected: int) -> FileLost:
        """Return the error of a file that is too short."""
        return cls(errno.ENOENT, f"somebody has cut it to {size} of {expected} bytes", path)


class ReadableFile(Protocol):
    """What can be read of an open file, or of an object of a store."""

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only where the file ends."""

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill the buffer from the file and return how many bytes came; fewer only at the end."""


class File(ReadableFile, Protocol):
    """An open file. Positions are explicit: there is no cursor to share or to lose."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` or raise."""

    def write_all_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one behind the other, in as few system calls as the kernel allows."""

    def size(self) -> int:
        """Return the file's length now."""

    def ensure_intact(self, size: int) -> None:
        """Raise FileLost if the file is shorter than this, or no longer has a name."""

    def ensure_length(self, size: int) -> None:
        """Raise FileLost if the file is shorter than this: cheaper than ``ensure_intact``."""

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""

    def allocate(self, size: int) -> None:
        """Reserve room on the disk so that the file is ``size`` long, filled with zeros."""

    def reserve(self, position: int, size: int) -> None:
        """Reserve room on the disk for later writes, if that is easy; the file does not change.

        It makes them cheaper, but guarantees nothing. ``truncate``, to any size, releases it.
        """

    def sync(self) -> None:
        """Return once everything written has reached the disk."""

    def send_to(self, sock: StreamSocket, position: int, size: int) -> int:
        """Send up to ``size`` bytes from a position to a socket, and return how many it took.

        That is at least one, else BlockingIOError is raised; 0 only where the file ends.
        """

    def close(self) -> None:
        """Close the descriptor. Closing twice is harmless."""


class Lock(Protocol):
    """A lock on a file, held until released or until the process ends."""

    def release(self) -> None:
        """Let go."""


class WholeDisk(Protocol):
    """The disk that a folder is on, to be synced as a whole."""

    def sync(self) -> None:
        """Return once all that was written to the disk has reached it, names included.

        OSError if anything has failed to since ``whole_disk`` returned this.
        """

    def close(self) -> None:
        """Let go of it. Closing twice is harmless."""


class FileSystem(Protocol):
    """Names and folders. Failures are ``OSError`` with the usual errno."""

    #: Called when there is no descriptor left for a file that is to be opened: closes another one
    #: and returns True, or returns False. May be called in any thread.
    give_back_descriptor: Callable[[], bool]

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file for reading, or for both; ``create`` makes it where it does not exist."""

    def read(self, path: str) -> bytes:
        """Return a whole small file."""

    def list_dir(self, path: str) -> list[Entry]:
        """Return the names in a folder, in no order."""

    def stat(self, path: str) -> FileStat:
        """Return size, time of last change, and which file it is."""

    def exists(self, path: str) -> bool:
        """Tell whether the name is there."""

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the time of last change."""

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it; no error if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name, replacing a file that has it."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything in it."""

    def sync_dir(self, path: str) -> None:
        """Return once the folder's names have reached the disk."""

    def whole_disk(self, path: str) -> WholeDisk | None:
        """Return the disk of a folder; None if it can only be synced file by file."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the disk that holds ``path``."""

    def lock(self, path: str) -> Lock:
        """Lock a file, creating it; BlockingIOError if another process (or lock) holds it."""


def join(folder: str, name: str) -> str:
    """Put a name behind a folder."""
    return f"{folder}/{name}"


def parent(path: str) -> str:
    """Return the folder a path is in."""
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def write_atomically(
    fs: FileSystem, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True
) -> None:
    """Replace a small file so that a reader, or a start after a crash, sees the old or the new one.

    Done as in Kafka: ``<name>.tmp``, fsync, rename, fsync of the folder. Without ``sync`` this
    survives only the death of the process; after a power cut the file may be empty. Without
    ``sync_name`` the old file may come back until the folder is synced.
    """
    temporary = temporary_name(path)
    write_whole(fs, temporary, data, sync=sync)
    fs.rename(temporary, path)
    if sync and sync_name:
        fs.sync_dir(parent(path))


class Replacement(NamedTuple):
    """The new content of a small file, to be written as ``write_atomically`` does.

    First under another name, which may replace the old one when the content is on the disk.
    """

    path: str
    data: bytes
    #: Whether the file may be torn by a power cut, and has no other name.
    in_place: bool

    @property
    def written_path(self) -> str:
        """Where it is written."""
        return self.path if self.in_place else temporary_name(self.path)


def temporary_name(path: str) -> str:
    """Return what a file is called until it replaces the one with its name."""
    return path + ".tmp"


def write_whole(fs: FileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
    """Create a small file, or write it anew in place; only its name may be lost by a power cut."""
    file = fs.open(path, write=True, create=True)
    try:
        file.write_at(0, data)
        cut_behind(file, len(data))
        if sync:
            file.sync()
    finally:
        file.close()


def cut_behind(file: File, size: int) -> None:
    """Cut what a longer file had behind this size.

    A file that is cut to nothing before it is written is written out by ext4 when it is closed,
    which takes longer than all the rest.
    """
    if file.size() > size:
        file.truncate(size)


def make_empty(fs: FileSystem, path: str) -> None:
    """Create an empty file, or empty the one that is there."""
    file = fs.open(path, write=True, create=True)
    try:
        file.truncate(0)
    finally:
        file.close()


def sync_file(fs: FileSystem, path: str) -> None:
    """Sync a file that may be open elsewhere; FileNotFoundError if it is gone."""
    file = fs.open(path)
    try:
        file.sync()
    finally:
        file.close()


def make_dirs_durably(fs: FileSystem, path: str) -> None:
    """Make a folder and those above it, so that they survive a power cut."""
    if fs.exists(path):
        return
    above = parent(path)
    make_dirs_durably(fs, above)
    fs.make_dirs(path)
    fs.sync_dir(above)


class OsFile:
    """A file of the operating system.

    It is closed at the latest when nothing refers to it any more (in CPython at that very moment):
    slices of a segment keep the file usable after the segment is gone.
    """

    __slots__ = ("__weakref__", "_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill the buffer as far as the file goes."""
        size = len(buffer)
        got = os.preadv(self._fd, [buffer], position)
        while 0 < got < size:
            more = os.preadv(self._fd, [memoryview(buffer)[got:]], position + got)
            if not more:
                break
            got += more
        return got

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data``."""
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            self._write_rest(position + written, memoryview(data)[written:])

    def write_all_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers with one system call, if the kernel takes them whole."""
        for start in range(0, len(buffers), _IOV_MAX):
            group = buffers[start : start + _IOV_MAX]
            total = sum(map(len, group))
            written = os.pwritev(self._fd, group, position)
            if written != total:
                self._write_rest(position + written, memoryview(b"".join(group))[written:])
            position += total

    def _write_rest(self, position: int, rest: memoryview) -> None:
        # A nearly full disk writes less than asked before it fails with ENOSPC.
        while rest:
            written = os.pwrite(self._fd, rest, position)
            if written == 0:
                raise OSError(errno.EIO, "the disk took no bytes", self._path)
            position += written
            rest = rest[written:]

    def size(self) -> int:
        """Return the length."""
        return os.fstat(self._fd).st_size

    def ensure_intact(self, size: int) -> None:
        """Look at the file's length and its names."""
        found = os.fstat(self._fd)
        if found.st_size < size:
            raise FileLost.cut(self._path, found.st_size, size)
        if not found.st_nlink:
            raise FileLost(errno.ENOENT, "somebody has deleted it", self._path)

    def ensure_length(self, size: int) -> None:
        """Look at the length by a seek, which takes a third of the time of fstat."""
        found = os.lseek(self._fd, 0, os.SEEK_END)
        if found < size:
            raise FileLost.cut(self._path, found, size)

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        """Reserve room; where the file system cannot, extend without reserving."""
        if size <= 0:
            return
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            if self.size() < size:
                os.ftruncate(self._fd, size)

    def reserve(self, position: int, size: int) -> None:
        """Reserve room if the system can; if not, the writes themselves will tell."""
        if _fallocate is not None:
            _fallocate(self._fd, _KEEP_SIZE, position, size)

    def sync(self) -> None:
        """Flush to the disk."""
        os.fsync(self._fd)

    def send_to(self, sock: StreamSocket, position: int, size: int) -> int:
        """Send from the file, without copying it to memory."""
        return os.sendfile(sock.fileno(), self._fd, position, size)

    def close(self) -> None:
        """Close once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


#: The mode of new files, whatever the umask: there are keys of users in the metadata log and its
#: snapshots, by which passwords can be guessed, and what others may not read in partitions.
_OWNERS = 0o600


class _OsLock:
    """A POSIX record lock, the kind Java takes, so that Kafka and dohle keep each other out.

    Such a lock belongs to the process, and closing *any* descriptor of the file releases it.
    ``_held`` therefore remembers what this process holds, and is checked before opening the file.
    """

    __slots__ = ("_fd", "_key")
    _held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: str) -> None:
        if os.path.exists(path) and self._file_key(os.stat(path)) in self._held:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNERS)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from None
            raise
        self._key = self._file_key(os.fstat(self._fd))
        self._held.add(self._key)

    @staticmethod
    def _file_key(found: os.stat_result) -> tuple[int, int]:
        return found.st_dev, found.st_ino

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._held.discard(self._key)
            os.close(fd)


class OsFileSystem:
    """The machine's file system."""

    def __init__(self) -> None:
        self.give_back_descriptor: Callable[[], bool] = lambda: False

    def _having_descriptor(self, open_it: Callable[[], T]) -> T:
        """Open something; as long as there is no descriptor for it, have others given back."""
        while True:
            try:
                return open_it()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self.give_back_descriptor():
                    raise

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        """Open a file."""
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return OsFile(self._having_descriptor(lambda: os.open(path, flags, _OWNERS)), path)

    def read(self, path: str) -> bytes:
        """Return a whole small file."""
        fd = self._having_descriptor(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            # One spare byte: a file that fits shows its end in the same call.
            data = os.read(fd, 65_537)
            if len(data) < 65_537:
                return data
            parts = [data]
            while data := os.read(fd, 1 << 20):
                parts.append(data)
            return b"".join(parts)
        finally:
            os.close(fd)

    def list_dir(self, path: str) -> list[Entry]:
        """Return the names in a folder."""
        with self._having_descriptor(lambda: os.scandir(path)) as entries:
            return [Entry(entry.name, entry.is_dir(follow_symlinks=True)) for entry in entries]

    def stat(self, path: str) -> FileStat:
        """Return size and time of last change."""
        found = os.stat(path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000, found.st_ino)

    def exists(self, path: str) -> bool:
        """Tell whether the name is there."""
        return os.path.exists(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set the time of last change, and of last access with it."""
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename in one step."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything in it."""
        with self._having_descriptor(lambda: os.scandir(path)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        """Flush a folder's names to the disk."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        fd = self._having_descriptor(lambda: os.open(path, flags))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def whole_disk(self, path: str) -> WholeDisk | None:
        """Return the file system of a folder, if the kernel can sync it with a promise."""
        return self._having_descriptor(lambda: open_whole_disk(path))

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the disk."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on a file."""
        return _OsLock(path)
