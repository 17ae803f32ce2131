"""``.kafka_cleanshutdown``: the mark of a log directory that was closed in order.

It is written when everything else of the directory is on the disk, and its presence alone spares
the next start the recovery. So it must be gone from the disk, not only from the page cache, before
that start writes anything: :func:`remove_clean_shutdown` returns only then. Since KIP-966 the file
names the broker epoch too; older ones are empty, and then the epoch is unknown.
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
    """Tell whether the directory was closed in order."""
    return fs.exists(join(folder, CLEAN_SHUTDOWN_FILE))


def read_broker_epoch(fs: FileSystem, folder: str) -> int | None:
    """Return the broker epoch in the mark; None if there is no mark or it does not say."""
    try:
        content = json.loads(fs.read(join(folder, CLEAN_SHUTDOWN_FILE)))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int and -(1 << 63) <= epoch < 1 << 63 else None


def remove_clean_shutdown(fs: FileSystem, folder: str) -> None:
    """Take the mark away and return once that is on the disk.

    If it is gone already, the process that took it away may have been killed before its sync.
    """
    with suppress(FileNotFoundError):
        fs.remove(join(folder, CLEAN_SHUTDOWN_FILE))
    fs.sync_dir(folder)
