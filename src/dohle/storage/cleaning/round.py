"""One round of cleaning of one log, as jobs for another thread.

The driver's loop is::

    round = CleaningRound(log, cleanable, settings, now_ms)
    while (job := round.next_job()) is not None:
        job.run()             # in any thread; may take long, and never raises
        round.complete(job)   # on the log's thread, as all else here; takes no time to speak of

``complete`` raises what went wrong: CleaningAborted, Uncleanable, or an ``OSError`` of the disk.
Then the round is over, has removed its files, and there is no new checkpoint: groups of segments
that were swapped before stay swapped, because cleaning them again changes nothing.
When ``next_job`` returns None, ``end_offset`` is the new first dirty offset.

Between any two steps, and while a job runs, the log may be appended to, read, rolled, flushed,
truncated, shortened by retention, moved or deleted. Only one round of a log may be under way, with
its last job ended.

1. Map: the keys of the dirty part, each with its last offset. The map may fill up: then the round
   ends there, and the rest stays dirty.
2. Groups of neighbouring segments (``grouping``), from the log's first on, one after the other:
   a. rewrite the group's records that stay to one new segment, ``<base>.*.cleaned``, and sync it;
   b. if the group is still part of the log: rename its files to ``.swap``; sync the folder;
   c. the same again: the new segment takes the group's place for readers, the old files become
      ``.deleted`` and the new ones get their names; sync the folder.

What a crash leaves is completed or undone by ``directory.loader``.
"""

from __future__ import annotations

from typing import Protocol

from dohle.storage.cleaning.round_values import CleanerSettings, Statistics
from dohle.storage.cleaning.selection import Cleanable
from dohle.storage.log import Log


class Job(Protocol):
    """A part of a round that may block: it uses nothing that changes but files."""

    def run(self) -> None:
        """Do it, in any thread. ``complete`` tells whether it went well."""


class CleaningRound:
    """A round that may be given up at any time."""

    def __init__(
        self, log: Log, cleanable: Cleanable, settings: CleanerSettings, now_ms: int
    ) -> None:
        self.statistics = Statistics()
        #: Valid when ``next_job`` has returned None: the new first dirty offset.
        self.end_offset = cleanable.first_dirty_offset

    def next_job(self) -> Job | None:
        """Return what to do next; None if the round is over.

        Raises as ``complete`` does.
        """
        raise NotImplementedError

    def complete(self, job: Job) -> None:
        """Take in that a job has ended."""
        raise NotImplementedError

    def abort(self) -> None:
        """End the round; a job that runs notices within about one I/O buffer.

        Its ``complete`` raises CleaningAborted then, and need not be called.
        """
        raise NotImplementedError
