"""A cleaned segment takes the place of a group of others, so that no crash leaves half of it.

1. ``offer``: the files, all of them on the disk as ``.cleaned``, become ``.swap``. A start after a
   crash removes all of them if one is still ``.cleaned``, and else completes the rest. The folder
   is synced before the next step.
2. ``take_place``: readers see the new segment, and the old files become ``.deleted``. A start
   removes those, and whatever else lies within the new segment's offsets. The folder is synced
   before the next step: if the new file had its name and an old one kept it, there would be two
   segments with the same records. Kafka syncs neither time.
3. ``finish``: the files get their names.

After ``offer`` a start would bring back what a truncation or retention has removed since, so
``withdraw`` comes before that, durably. It renames the files back: index files without their log
would be taken for those of the old segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dohle.storage.files import join
from dohle.storage.log import Log
from dohle.storage.segment.file_names import (
    CLEANED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_file_name,
)
from dohle.storage.segment.segment import LogSegment


class SegmentSwap:
    """The steps, on the thread that uses the log."""

    def __init__(self, log: Log, old: Sequence[LogSegment]) -> None:
        self._log = log
        self._fs = log.fs
        self._old = tuple(old)
        self._directory = log.directory
        self._generation = log.files.generation
        self._new: LogSegment | None = None
        self._is_offered = False

    @property
    def is_possible(self) -> bool:
        """Whether the old segments are still part of the log, in the same place, or replaced."""
        if self._new is not None:
            return True
        present = set(self._log.segments)
        return (
            self._generation == self._log.files.generation
            and self._directory == self._log.directory
            and all(segment in present for segment in self._old)
        )

    def _names(self) -> list[str]:
        base_offset = self._old[0].base_offset
        return [segment_file_name(base_offset, kind) for kind in SEGMENT_SUFFIXES]

    def _rename(self, source: str, target: str) -> None:
        for name in self._names():
            path = join(self._directory, name)
            if self._fs.exists(path + source):
                self._fs.rename(path + source, path + target)

    def give_up(self) -> None:
        """Leave the log as it was, or complete the swap if readers have seen it."""
        if self._new is not None:
            self.finish(sync=True)
        elif self._is_offered:
            self.withdraw()
        else:
            self._remove_cleaned()

    def _remove_cleaned(self) -> None:
        if self._directory != self._log.directory:
            return
        for name in self._names():
            # The job may be removing them at this moment, too.
            with suppress(FileNotFoundError):
                self._fs.remove(join(self._directory, name) + CLEANED_SUFFIX)

    def offer(self) -> None:
        """From here on a start completes the swap."""
        self._log.files.before_removal = self._before_removal
        self._is_offered = True
        self._rename(CLEANED_SUFFIX, SWAP_SUFFIX)

    def _before_removal(self, gone: Sequence[LogSegment]) -> None:
        if not set(gone).isdisjoint(self._old):
            self.withdraw()

    def withdraw(self) -> None:
        """Undo the offer, durably."""
        if not self._is_offered:
            return
        self._is_offered = False
        self._log.files.before_removal = None
        if self._directory != self._log.directory:
            # It has moved, and the old folder is being deleted.
            return
        self._rename(SWAP_SUFFIX, CLEANED_SUFFIX)
        self._fs.sync_dir(self._directory)
        self._remove_cleaned()

    def take_place(self) -> None:
        """Let readers see the new segment."""
        log, base_offset = self._log, self._old[0].base_offset
        self._is_offered = False
        log.files.before_removal = None
        path = join(self._directory, self._names()[0] + SWAP_SUFFIX)
        new = LogSegment(
            log.files.context,
            self._directory,
            base_offset,
            log.config,
            size=self._fs.stat(path).size,
            suffix=SWAP_SUFFIX,
        )
        log.files.replace_segments(self._old, new, log.config.file_delete_delay_ms)
        self._new = new

    def finish(self, *, sync: bool = False) -> None:
        """Give the files of the new segment their names, unless it is gone again."""
        new, self._new = self._new, None
        if new is None or new not in set(self._log.segments):
            return
        if sync:
            self._fs.sync_dir(self._log.directory)
        indexes = new.indexes
        for part in (new.log_file, indexes.offset, indexes.time, indexes.txn):
            path = part.path.removesuffix(SWAP_SUFFIX)
            if self._fs.exists(part.path):
                self._fs.rename(part.path, path)
            part.path = path
