"""A small disk for each node, that can be full: a tmpfs, which takes the right to mount one."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

_SIZE = "1g"
_BALLAST = "ballast"
_PIECE_BYTES = 1 << 20


class Disks:
    """Mounts disks, and fills and empties them."""

    def __init__(self) -> None:
        self._mounted: list[Path] = []

    def mount(self, folder: Path) -> str:
        """Make a folder a disk of its own; return why not, if it cannot be."""
        folder.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            return str(error)
        if done.returncode:
            return done.stderr.strip()
        self._mounted.append(folder)
        return ""

    def fill(self, folder: Path, left_bytes: int) -> None:
        """Let a disk have no more room than so many bytes."""
        with (folder / _BALLAST).open("ab") as ballast:
            try:
                while True:
                    os.write(ballast.fileno(), bytes(_PIECE_BYTES))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            size = os.fstat(ballast.fileno()).st_size
            os.truncate(ballast.fileno(), max(size - left_bytes, 0))

    def empty(self, folder: Path) -> None:
        """Give the room back."""
        (folder / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount all."""
        for folder in self._mounted:
            # Lazily: a process that was just killed may still be on its way out.
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
        self._mounted.clear()
