"""``.kafka_cleanshutdown``: the mark of a log directory that was closed cleanly.

It is written when everything else in the directory is on the disk; if it is there, the next start
skips recovery. So it must be gone from the disk, not only from the page cache, before that start
writes anything: :func:`remove_clean_shutdown` returns only then. Since KIP-966 the file has the
broker epoch; older ones are empty, and then the epoch is unknown.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

from dohle.storage.files import FileSystem, join, write_atomically

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"


def write_clean_shutdown(fs: FileSystem, folder: str, broker_epoch: int) -> None:
    """Mark the directory, as the last thing before the process ends."""
    content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    write_atomically(fs, join(folder, CLEAN_SHUTDOWN_FILE), content.encode())


def has_clean_shutdown(fs: FileSystem, folder: str) -> bool:
    """Tell whether the directory was closed cleanly."""
    return fs.exists(join(folder, CLEAN_SHUTDOWN_FILE))


def read_broker_epoch(fs: FileSystem, folder: str) -> int | None:
    """Return the broker epoch in the mark; None if there is no mark, or no epoch in it."""
    try:
        content = json.loads(fs.read(join(folder, CLEAN_SHUTDOWN_FILE)))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int and -(1 << 63) <= epoch < 1 << 63 else None


def remove_clean_shutdown(fs: FileSystem, folder: str) -> None:
    """Remove the mark and return once that is on the disk.

    This syncs even if there is no mark: the process that removed it may have been killed before its
    sync.
    """
    with suppress(FileNotFoundError):
        fs.remove(join(folder, CLEAN_SHUTDOWN_FILE))
    fs.sync_dir(folder)
