"""How many files of segments are open: a bound, so that partitions may be many and descriptors few.

A segment's file is opened when it is needed and stays open for the next time. Beyond the bound the
one that was not used for the longest time is let go of, nearly: each gets a second chance before
it goes, so that a use costs no more than a mark (the "clock" of page replacement).

Letting go closes nothing that is in use: who reads from a file, or sends a slice of it, refers to
it, and it is closed with the last reference. Such files are *held*. Their number is bounded by
those who send: beyond ``held_max`` they copy what they send instead.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol
from weakref import ref

from dohle.storage.files import File

CACHED_DEFAULT = 256
#: How many descriptors a node needs before its first segment and connection.
_ALWAYS_OPEN = 32


class FileHolder(Protocol):
    """Something that keeps a file open, and can do without."""

    #: Set at each use.
    was_used: bool

    def let_go(self) -> None:
        """Drop the file; the next use opens it again."""


class OpenFiles:
    """The files that segments keep open.

    ``give_back`` may be called in any thread: each step here is one that no other can interrupt.
    """

    def __init__(self, cached_max: int = CACHED_DEFAULT, held_max: int | None = None) -> None:
        self._cached_max = max(1, cached_max)
        self._held_max = self._cached_max // 2 if held_max is None else held_max
        self._holders: OrderedDict[FileHolder, None] = OrderedDict()
        self._alive: set[ref[File]] = set()

    @classmethod
    def within(cls, open_files_max: int) -> OpenFiles:
        """Return a bound for a process that may have this many files and sockets open.

        Some are always open: those of the loop, of listeners, locks and directories. Of the others
        segments get three eighths, with those that are being sent. Connections get half, and the
        rest is for files that are open for a moment: indexes, checkpoints, syncs.
        """
        others = max(0, open_files_max - _ALWAYS_OPEN)
        return cls(others // 4, others // 8)

    @property
    def may_hold_more(self) -> bool:
        """Whether somebody may refer to another file for long: until it is sent."""
        return len(self._alive) - len(self._holders) < self._held_max

    def opened(self, holder: FileHolder, file: File) -> None:
        """Take note of a file that was just opened, and let go of others for it."""
        self._alive.add(ref(file, self._alive.discard))
        holder.was_used = True
        self._holders[holder] = None
        while len(self._holders) > self._cached_max and self.give_back():
            pass

    def forget(self, holder: FileHolder) -> None:
        """Take note that a holder has closed its file."""
        self._holders.pop(holder, None)

    def give_back(self) -> bool:
        """Let go of a file that was not used for long; False if there is none."""
        while True:
            try:
                holder, _ = self._holders.popitem(last=False)
            except KeyError:
                return False
            if not holder.was_used:
                holder.let_go()
                return True
            holder.was_used = False
            self._holders[holder] = None
