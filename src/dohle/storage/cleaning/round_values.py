"""What a round of cleaning is given and what it tells: the small values around ``round``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dohle.core.seams import Clock
    from dohle.storage.cleaning.round_work import Work
    from dohle.storage.files import FileSystem

    #: Takes the log's files and clock, the throttle, and who is told of bytes before they are
    #: written, and how many the disk has free.
    NewWork = Callable[[FileSystem, Clock, Callable[[int], None], Callable[[int, int], None]], Work]


class CleaningAborted(Exception):
    """The round has ended early and its files are gone; the log stays as dirty as it is told.

    It was stopped, or the log's segments have changed: by a truncation, a deletion, a move.
    """


class Uncleanable(Exception):
    """Something in the log cannot be cleaned, now or later; the text says what and where."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def unthrottled(_bytes: int) -> None:
    """Let the work go on at once."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """What one cleaner thread may use. Fields are the broker's ``log.cleaner.*``, by thread."""

    #: ``log.cleaner.dedupe.buffer.size`` over the number of threads.
    dedupe_buffer_bytes: int = 128 << 20
    #: ``log.cleaner.io.buffer.load.factor``: how full the map of keys may become.
    load_factor: float = 0.9
    #: ``log.cleaner.io.buffer.size`` over the number of threads.
    io_buffer_bytes: int = 512 << 10
    #: Called in the job's thread with each number of bytes read or written, about a buffer's worth
    #: at a time. It may block, to keep a rate. What it raises ends the job like an abort.
    throttle: Callable[[int], None] = field(default=unthrottled)
    #: Does the computing of a round; if there is none, its jobs do it themselves.
    new_work: NewWork | None = None


@dataclass(slots=True)
class Statistics:
    """What a round has done so far."""

    #: While the map was built.
    map_bytes_read: int = 0
    map_messages_read: int = 0
    #: While segments were rewritten.
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    #: Records without a key, which compaction drops.
    invalid_messages: int = 0
    tombstones_kept: int = 0
    segments_read: int = 0
    segments_written: int = 0
    #: How many keys the map had, and how full that was, from 0 to 1.
    map_keys: int = 0
    buffer_utilization: float = 0.0

    def add(self, other: Statistics) -> None:
        """Add the counts of another part of the round."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
