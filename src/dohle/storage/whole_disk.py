"""A file system that is synced as a whole: one call in place of an fsync for each of many files.

``syncfs`` returns once everything that anybody has written to a file system has reached its disk.
After writes to thousands of files that takes tenths of a second, where as many calls of fsync take
many seconds. It is used only where it promises as much as fsync does:

- Linux from 5.17 on. Older ones do not tell whether it has failed: up to 5.8 never, up to 5.17 not
  if it was the file system's own data that could not be written.
- ext4 and XFS. Of files on an overlay, or on another machine, errors are not told there.
- The descriptor is opened before anything is written, and kept: it is told of every error since,
  whoever else has asked meanwhile. It is told of others' errors too, which does no harm: the next
  start looks at logs that are in order.

It also waits for what other processes have written: with few files fsync is better.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from typing import cast

_LINUX_MIN = (5, 17)
_FILE_SYSTEMS = frozenset({"ext4", "xfs"})
_MOUNTS = "/proc/self/mountinfo"


class OsWholeDisk:
    """The file system that holds a path, open to be synced."""

    def __init__(self, path: str, syncfs: Callable[[int], int]) -> None:
        self._path = path
        self._syncfs = syncfs
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        """Sync everything that is on it."""
        if self._syncfs(self._fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self._path)

    def close(self) -> None:
        """Close the descriptor, once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def open_whole_disk(path: str) -> OsWholeDisk | None:
    """Open the file system of a folder; None where it is not certain that errors are told."""
    syncfs = _find_syncfs()
    if syncfs is None or _file_system_type(path) not in _FILE_SYSTEMS:
        return None
    return OsWholeDisk(path, syncfs)


def _find_syncfs() -> Callable[[int], int] | None:
    """Return Linux's call, which Python does not offer."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None:
        return None
    if (int(release[1]), int(release[2])) < _LINUX_MIN:
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None
    function.argtypes, function.restype = (ctypes.c_int,), ctypes.c_int
    return cast("Callable[[int], int]", function)


def _file_system_type(path: str) -> str | None:
    """Return what is mounted there, as the kernel names it; None if that is not known."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                if before.split()[2] == number:
                    return after.split()[0]
    except OSError:
        return None
    return None
