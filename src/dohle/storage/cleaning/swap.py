"""A cleaned segment takes the place of a group of others, so that no crash leaves half of it.

1. ``offer``: the files, all of them on the disk as ``.cleaned``, become ``.swap``. A start after a
   crash removes all of them if one is still ``.cleaned``, and else completes the rest. The folder
   is synced before the next step.
2. ``take_place``: readers see the new segment. Then the old files become ``.deleted``, a few in
   each ``delete_some``, so that appends need not wait for all; if anything is to become of the log
   meanwhile, the rest of them come first. A start removes those, and whatever else lies within the
   new segment's offsets. The folder is synced before the next step: if the new file had its name
   and an old one kept it, there would be two segments with the same records. Kafka syncs neither
   time.
3. ``finish``: the files get their names.

A segment may become several, if its offsets do not fit into one. A start takes those that are
``.swap`` for complete if they lie before all that are ``.cleaned``: so the first of them gets that
name when the others have theirs on the disk, and gives it back before they do.

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
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_file_name,
)
from dohle.storage.segment.segment import LogSegment

#: How many segments are renamed at a time: that takes less than a millisecond.
_DELETED_AT_ONCE = 8


class SegmentSwap:
    """The steps, on the thread that uses the log."""

    def __init__(self, log: Log, old: Sequence[LogSegment]) -> None:
        self._log = log
        self._fs = log.fs
        self._old = tuple(old)
        self._directory = log.directory
        self._generation = log.files.generation
        #: Where the new segments begin: nearly always one, where the first of the old ones does.
        self.base_offsets: tuple[int, ...] = (old[0].base_offset,)
        self._new: tuple[LogSegment, ...] = ()
        # The old segments that are not part of the log any more, but have their names still.
        self._left: tuple[LogSegment, ...] = ()
        self._is_offered = False

    @property
    def is_possible(self) -> bool:
        """Whether the old segments are still part of the log, in the same place, or replaced."""
        if self._new:
            return True
        present = set(self._log.segments)
        return (
            self._generation == self._log.files.generation
            and self._directory == self._log.directory
            and all(segment in present for segment in self._old)
        )

    def _rename(self, source: str, target: str, base_offsets: Sequence[int]) -> None:
        """Rename files, one segment after the other."""
        for number, base_offset in enumerate(base_offsets):
            if number:
                # There are several so seldom that the loop may wait for it.
                self._fs.sync_dir(self._directory)
            for name in _names(base_offset):
                path = join(self._directory, name)
                if self._fs.exists(path + source):
                    self._fs.rename(path + source, path + target)

    def give_up(self) -> None:
        """Leave the log as it was, or complete the swap if readers have seen it."""
        if self._new:
            self.finish(sync=True)
        elif self._is_offered:
            self.withdraw()
        else:
            self._remove_cleaned()

    def _remove_cleaned(self) -> None:
        if self._directory != self._log.directory:
            return
        for base_offset in self.base_offsets[::-1]:
            for name in _names(base_offset):
                # The job may be removing them at this moment, too.
                with suppress(FileNotFoundError):
                    self._fs.remove(join(self._directory, name) + CLEANED_SUFFIX)

    def offer(self) -> None:
        """From here on a start completes the swap."""
        self._is_offered = True
        self._rename(CLEANED_SUFFIX, SWAP_SUFFIX, self.base_offsets[::-1])

    def before_removal(self, gone: Sequence[LogSegment]) -> None:
        """Let a start find no more of segments that are about to be removed."""
        if self._left:
            # Without the new segment, a start would find the old ones again.
            self._delete(len(self._left))
        elif not set(gone).isdisjoint(self._old):
            self.withdraw()

    def withdraw(self) -> None:
        """Undo the offer, durably."""
        if not self._is_offered:
            return
        self._is_offered = False
        if self._directory != self._log.directory:
            # It has moved, and the old folder is being deleted.
            return
        self._rename(SWAP_SUFFIX, CLEANED_SUFFIX, self.base_offsets)
        self._fs.sync_dir(self._directory)
        self._remove_cleaned()

    def take_place(self) -> None:
        """Let readers see the new segment."""
        self._is_offered = False
        new = tuple(map(self._open_offered, self.base_offsets))
        self._log.segments.replace(self._old, new)
        self._new, self._left = new, self._old

    def delete_some(self) -> bool:
        """Delete some of the old segments; tell whether any are left."""
        self._delete(_DELETED_AT_ONCE)
        return bool(self._left)

    def _delete(self, count: int) -> None:
        log, gone = self._log, self._left[:count]
        self._left = self._left[count:]
        if self._directory == log.directory:
            # Else the log has moved, and the old folder is being deleted.
            log.files.delete_replaced(gone, self.base_offsets, log.config.file_delete_delay_ms)

    def _open_offered(self, base_offset: int) -> LogSegment:
        path = join(self._directory, segment_file_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX))
        return LogSegment(
            self._log.files.context,
            self._directory,
            base_offset,
            self._log.config,
            size=self._fs.stat(path).size,
            suffix=SWAP_SUFFIX,
        )

    def finish(self, *, sync: bool = False) -> None:
        """Give the files of the new segment their names, unless it is gone again."""
        self._delete(len(self._left))
        new, self._new = self._new, ()
        present = set(self._log.segments)
        left = [segment for segment in new if segment in present]
        if sync and left:
            self._fs.sync_dir(self._log.directory)
        for segment in left:
            indexes = segment.indexes
            for part in (segment.log_file, indexes.offset, indexes.time, indexes.txn):
                path = part.path.removesuffix(SWAP_SUFFIX)
                if self._fs.exists(part.path):
                    self._fs.rename(part.path, path)
                part.path = path


def _names(base_offset: int) -> list[str]:
    return [segment_file_name(base_offset, kind) for kind in SEGMENT_SUFFIXES]
