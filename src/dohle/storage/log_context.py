"""What a log and its segments need from outside: the seams, and parts of their directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dohle.core.seams import Clock, Rng
from dohle.storage.directory.delayed_deletions import DelayedDeletions
from dohle.storage.directory.disk_status import DiskStatus
from dohle.storage.files import FileSystem
from dohle.storage.open_files import OpenFiles
from dohle.storage.producers.state import ProducerStateConfig
from dohle.storage.segment.index import IndexMemory

if TYPE_CHECKING:
    from dohle.storage.flush import FlushSchedule
    from dohle.storage.log import Log


@dataclass(frozen=True, slots=True)
class LogContext:
    """The same for all logs of a directory."""

    fs: FileSystem
    clock: Clock
    rng: Rng
    #: Whether the directory is online; an ``OSError`` takes it offline.
    disk: DiskStatus
    #: Where a log asks to be flushed.
    flushes: FlushSchedule[Log]
    #: Takes the files that are to be deleted after a delay.
    deletions: DelayedDeletions
    #: Writes the recovery points of all logs of the directory to the disk.
    checkpoint_recovery_points: Callable[[], None]
    #: Writes how far each log of the directory was cleaned.
    checkpoint_cleaner_offsets: Callable[[], None]
    #: The memory limit that the indexes of all logs of the node share.
    index_memory: IndexMemory
    #: How many of their files may be open.
    open_files: OpenFiles
    producer_config: ProducerStateConfig
    #: Told how many seconds a flush took that the log has waited for.
    on_flushed: Callable[[float], None] = lambda seconds: None
