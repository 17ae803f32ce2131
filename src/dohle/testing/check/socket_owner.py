"""Whose a connection is: Linux tells in /proc. Elsewhere nobody is found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_LOCAL, _INODE = 1, 9


def owner_of(port: int, processes: Mapping[int, int]) -> int | None:
    """Return which of the nodes has a socket with this local port; ``processes`` has their pids."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for node, pid in processes.items():
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                if os.readlink(f"{folder}/{name}") in wanted:
                    return node
            except OSError:
                # It was closed meanwhile.
                continue
    return None


def _inodes(port: int) -> Iterator[str]:
    suffix = f":{port:04X}"
    # Java's sockets are of IPv6, also for addresses of IPv4.
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[_LOCAL].endswith(suffix):
                yield fields[_INODE]
