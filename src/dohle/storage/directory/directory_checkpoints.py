"""The checkpoint files of a log directory: numbers that are kept beside its logs, not in them.

Each has one number for every log: its recovery point, its high watermark, its log start offset. A
fourth is the cleaner's, and tells which logs were once compacted. A file that cannot be read counts
as missing. No entry may outlive its log: a new log of the same name would inherit it.

What recurs is gathered in steps and written in a thread, under a name of its own. Meanwhile a file
may be written anew, for a log that is deleted or truncated: so each content has a number, given
when it was begun, and none replaces a later one.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dohle.core.ids import TopicPartition
from dohle.core.steps import Blocking, Steps
from dohle.storage.directory.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpoint,
    format_entries,
    offset_entry,
    read_offsets,
    write_offsets,
)
from dohle.storage.files import FileSystem, join, write_atomically, write_whole
from dohle.storage.log import Log

logger = logging.getLogger("dohle.storage")

Offsets = Mapping[TopicPartition, int]
#: What a file has of a log; None if it needs no entry.
Value = Callable[[Log], int | None]

#: So many logs are asked in one step.
_LOGS_PER_STEP = 200
#: What a thread writes has this name until it is complete. One that a crash has left is ignored.
_LATER_SUFFIX = ".later.tmp"
#: The same for logs that are deleted: what recurs may be written at the same time.
_DELETED_SUFFIX = ".deleted.tmp"


def _recovery_point(log: Log) -> int:
    return log.recovery_point


def _high_watermark(log: Log) -> int:
    return log.high_watermark


def _log_start_offset(log: Log) -> int | None:
    """Return a log start that is not a base offset."""
    start = log.log_start_offset
    return start if start > log.segments.first.base_offset else None


_VALUES: Mapping[str, Value] = {
    RECOVERY_POINT_CHECKPOINT: _recovery_point,
    LOG_START_OFFSET_CHECKPOINT: _log_start_offset,
    HIGH_WATERMARK_CHECKPOINT: _high_watermark,
}


@dataclass(frozen=True, slots=True)
class KnownOffsets:
    """What the files say."""

    recovery_points: Offsets
    high_watermarks: Offsets
    log_starts: Offsets
    #: False if there was no file, or none that could be read.
    has_recovery_points: bool
    #: None if the file cannot be read: then any log may be among them.
    cleaned: Offsets | None

    def may_be_cleaned(self, partition: TopicPartition) -> bool:
        """Tell whether a log may once have been compacted."""
        return self.cleaned is None or partition in self.cleaned


class DirectoryCheckpoints:
    """The files of one directory, written from the logs that are in it."""

    def __init__(self, fs: FileSystem, folder: str, logs: Mapping[TopicPartition, Log]) -> None:
        self._fs = fs
        self._folder = folder
        self._logs = logs
        # What is known, by file, of partitions that are not served now but may be again.
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        # By file: the number of the content begun last, and of that written last.
        self._begun: defaultdict[str, int] = defaultdict(int)
        self._written: defaultdict[str, int] = defaultdict(int)

    def keep(self, partition: TopicPartition, known: KnownOffsets) -> None:
        """Go on writing what is known of a partition that is not among the logs."""
        for name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, known.recovery_points),
            (HIGH_WATERMARK_CHECKPOINT, known.high_watermarks),
            (LOG_START_OFFSET_CHECKPOINT, known.log_starts),
        ):
            if partition in offsets:
                self._kept.setdefault(name, {})[partition] = offsets[partition]

    def forget_kept(self, partition: TopicPartition) -> None:
        """Write it no longer."""
        for offsets in self._kept.values():
            offsets.pop(partition, None)

    def read(self) -> KnownOffsets:
        """Read all files."""
        recovery_points = self._read(RECOVERY_POINT_CHECKPOINT)
        return KnownOffsets(
            recovery_points or {},
            self._read(HIGH_WATERMARK_CHECKPOINT) or {},
            self._read(LOG_START_OFFSET_CHECKPOINT) or {},
            recovery_points is not None,
            self._read_cleaned(),
        )

    def _read_cleaned(self) -> Offsets | None:
        found = self._read(CLEANER_OFFSET_CHECKPOINT)
        if found is None and not self._fs.exists(join(self._folder, CLEANER_OFFSET_CHECKPOINT)):
            return {}
        return found

    def _read(self, name: str) -> Offsets | None:
        path = join(self._folder, name)
        try:
            return read_offsets(self._fs, path) if self._fs.exists(path) else None
        except CorruptCheckpoint as error:
            logger.warning("%s: ignoring a checkpoint that cannot be read: %s", self._folder, error)
            return None

    def replace_stale(self, known: KnownOffsets) -> None:
        """Rewrite the files that have entries beyond what was found.

        The next start must not use the numbers of a lost log for the one that replaces it.
        """
        if not known.has_recovery_points or self._is_stale(
            known.recovery_points, lambda log: log.recovery_point
        ):
            self.write_recovery_points()
        if self._is_stale(known.log_starts, lambda log: log.log_start_offset):
            self.write_log_start_offsets()
        if self._is_stale(known.high_watermarks, lambda log: log.high_watermark):
            self.write_high_watermarks()

    def _is_stale(self, found: Offsets, value: Callable[[Log], int]) -> bool:
        return any(
            partition not in self._logs or offset > value(self._logs[partition])
            for partition, offset in found.items()
        )

    def write_all(self) -> None:
        """Write the three files with numbers of the logs."""
        self.write_recovery_points()
        self.write_log_start_offsets()
        self.write_high_watermarks()

    def write_recovery_points(self) -> None:
        """Write each log's recovery point."""
        self._write(RECOVERY_POINT_CHECKPOINT)

    def write_high_watermarks(self) -> None:
        """Write each log's high watermark."""
        self._write(HIGH_WATERMARK_CHECKPOINT)

    def write_log_start_offsets(self, *coming: Log) -> None:
        """Write the log start offsets that are not base offsets, also of logs that move in."""
        self._write(LOG_START_OFFSET_CHECKPOINT, *coming)

    def write_all_in_steps(self) -> Steps[None]:
        """Write the three files when logs are deleted; there is one such deletion at a time."""
        for name in _VALUES:
            yield from self.write_in_steps(name, _DELETED_SUFFIX)

    def write_in_steps(self, name: str, suffix: str = _LATER_SUFFIX) -> Steps[None]:
        """Write one of the three files as it is now, or a little later."""
        number = self._begin(name)
        entries = self._kept_entries(name)
        value = _VALUES[name]
        for position, log in enumerate(tuple(self._logs.values()), 1):
            if (offset := value(log)) is not None:
                entries.append(offset_entry(log.partition, offset))
            if position % _LOGS_PER_STEP == 0:
                yield None
        path, later = join(self._folder, name), join(self._folder, name + suffix)
        data = format_entries(entries)
        yield from blocking(lambda: write_whole(self._fs, later, data))
        if number > self._written[name]:
            self._fs.rename(later, path)
            self._written[name] = number
            yield from blocking(lambda: self._fs.sync_dir(self._folder))

    def _write(self, name: str, *coming: Log) -> None:
        number = self._begin(name)
        entries = self._kept_entries(name)
        for log in (*self._logs.values(), *coming):
            if (offset := _VALUES[name](log)) is not None:
                entries.append(offset_entry(log.partition, offset))
        write_atomically(self._fs, join(self._folder, name), format_entries(entries))
        self._written[name] = number

    def _begin(self, name: str) -> int:
        self._begun[name] += 1
        return self._begun[name]

    def _kept_entries(self, name: str) -> list[str]:
        kept = self._kept.get(name, {})
        return [offset_entry(each, kept[each]) for each in kept if each not in self._logs]

    def may_be_cleaned(self, partition: TopicPartition) -> bool:
        """Tell whether a log may once have been compacted."""
        cleaned = self._read_cleaned()
        return cleaned is None or partition in cleaned

    def note_cleaned(self, partition: TopicPartition) -> None:
        """Count a log that moves in among those that were compacted."""
        found = self._read_cleaned()
        # While the file cannot be read, all logs count as such.
        if found is not None and partition not in found:
            # A cleaner that begins at the log start does more work than needed, but no harm.
            path = join(self._folder, CLEANER_OFFSET_CHECKPOINT)
            write_offsets(self._fs, path, {**found, partition: 0})


def blocking(work: Callable[[], None]) -> Steps[None]:
    """Do work that waits for the disk as one step; an ``OSError`` is raised here."""

    def attempt() -> OSError | None:
        try:
            work()
        except OSError as error:
            return error
        return None

    error = yield Blocking(attempt)
    if error is not None:
        raise error
