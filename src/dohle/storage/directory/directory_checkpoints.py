"""The checkpoint files of a log directory: numbers that are kept beside its logs, not in them.

Each has one number for every log: its recovery point, its high watermark, its log start offset. A
fourth is the cleaner's: up to where a log was cleaned, if it ever was. A file that cannot be read
counts as missing; but if it is the cleaner's, any log may have been cleaned. No entry may outlive
its log: a new log of the same name would inherit it.

What recurs is gathered in steps and written in a thread, under a name of its own. Meanwhile a file
may be written anew, for a log that is deleted or truncated: so each content has a number, given
when it was begun, and none replaces a later one.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
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
    is_marked,
    offset_entry,
    read_offsets,
)
from dohle.storage.files import FileSystem, join, write_atomically, write_whole
from dohle.storage.log import Log

logger = logging.getLogger("dohle.storage")

Offsets = Mapping[TopicPartition, int]
#: What a file has of a log; None if it needs no entry.
Value = Callable[[Log], int | None]

#: How many logs are asked in one step.
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
    """Return a log start that is not the first base offset, or of a log that is tiered."""
    start, config = log.log_start_offset, log.config
    is_told = start > log.segments.first.base_offset or config.remote_storage_enable
    return start if is_told else None


def _cleaner_offset(log: Log) -> int | None:
    return log.cleaner_offset


_VALUES: Mapping[str, Value] = {
    RECOVERY_POINT_CHECKPOINT: _recovery_point,
    LOG_START_OFFSET_CHECKPOINT: _log_start_offset,
    CLEANER_OFFSET_CHECKPOINT: _cleaner_offset,
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
    #: Whether the recovery points have the mark: a gap behind one is a loss (ADR 4).
    is_marked: bool = False

    def shows_losses(self, partition: TopicPartition) -> bool:
        """Tell whether a gap behind the log's recovery point cannot be intended.

        Before a log is cleaned its recovery point is here. If it is not, the log has moved in.
        """
        return self.is_marked and (
            partition in self.recovery_points or not self.may_be_cleaned(partition)
        )

    def may_be_cleaned(self, partition: TopicPartition) -> bool:
        """Tell whether a log may once have been compacted."""
        return self.cleaned is None or partition in self.cleaned

    def cleaner_offset(self, log: Log) -> int | None:
        """Return up to where a log was cleaned; None if it never was.

        If that cannot be known, or the log has lost records since, all of it is to be cleaned.
        """
        if self.cleaned is None:
            return log.log_start_offset
        found = self.cleaned.get(log.partition)
        if found is not None and not log.log_start_offset <= found <= log.log_end_offset:
            return log.log_start_offset
        return found


class DirectoryCheckpoints:
    """The files of one directory, written from the logs that are in it."""

    def __init__(self, fs: FileSystem, folder: str, logs: Mapping[TopicPartition, Log]) -> None:
        self._fs = fs
        self._folder = folder
        self._logs = logs
        self._has_cleaner_file = False
        # Logs in which gaps may be another broker's work, up to an offset.
        self._unsure: dict[TopicPartition, tuple[Log, int]] = {}
        self._keeps_unsure = False
        # What is known, by file, of partitions that are not served now but may be again.
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        # By file: the number of the content begun last, and of that written last.
        self._begun: defaultdict[str, int] = defaultdict(int)
        self._written: defaultdict[str, int] = defaultdict(int)

    def keep(self, partition: TopicPartition, known: KnownOffsets) -> None:
        """Go on writing what is known of a partition that is not among the logs."""
        self._keeps_unsure |= not known.is_marked
        for name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, known.recovery_points),
            (HIGH_WATERMARK_CHECKPOINT, known.high_watermarks),
            (LOG_START_OFFSET_CHECKPOINT, known.log_starts),
            (CLEANER_OFFSET_CHECKPOINT, {partition: 0} if known.cleaned is None else known.cleaned),
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
            is_marked(self._fs, join(self._folder, RECOVERY_POINT_CHECKPOINT)),
        )

    def _read_cleaned(self) -> Offsets | None:
        self._has_cleaner_file = self._fs.exists(join(self._folder, CLEANER_OFFSET_CHECKPOINT))
        return self._read(CLEANER_OFFSET_CHECKPOINT) if self._has_cleaner_file else {}

    def _read(self, name: str) -> Offsets | None:
        path = join(self._folder, name)
        try:
            return read_offsets(self._fs, path) if self._fs.exists(path) else None
        except CorruptCheckpoint as error:
            logger.warning("%s: ignoring a checkpoint that cannot be read: %s", self._folder, error)
            return None

    def gaps_may_be_intended(self, log: Log) -> None:
        """Note that nobody knows of a gap in what there is of a log whether it is a loss."""
        self._unsure[log.partition] = (log, log.log_end_offset)

    def _may_mark(self) -> bool:
        """Tell whether all logs are on the disk as far as gaps in them may be intended."""
        for partition, (log, offset) in tuple(self._unsure.items()):
            if self._logs.get(partition) is not log or log.recovery_point >= offset:
                del self._unsure[partition]
        return not self._unsure and not self._keeps_unsure

    def _format(self, name: str, entries: list[str]) -> bytes:
        return format_entries(
            entries, marked=name == RECOVERY_POINT_CHECKPOINT and self._may_mark()
        )

    def replace_stale(self, known: KnownOffsets) -> None:
        """Rewrite the files that have entries beyond what was found.

        The next start must not use the numbers of a lost log for the one that replaces it.
        """
        if (
            not known.has_recovery_points
            or (not known.is_marked and self._may_mark())
            or self._is_stale(known.recovery_points, lambda log: log.recovery_point)
        ):
            self.write_recovery_points()
        if self._is_stale(known.log_starts, lambda log: log.log_start_offset):
            self.write_log_start_offsets()
        if self._is_stale(known.high_watermarks, lambda log: log.high_watermark):
            self.write_high_watermarks()
        if known.cleaned is None or self._is_stale(
            known.cleaned, lambda log: -1 if log.cleaner_offset is None else log.cleaner_offset
        ):
            self.write_cleaner_offsets()

    def _is_stale(self, found: Offsets, value: Callable[[Log], int]) -> bool:
        return any(
            partition not in self._logs or offset > value(self._logs[partition])
            for partition, offset in found.items()
        )

    def write_all(self) -> None:
        """Write all files. Where no log was ever cleaned, there is none of the cleaner's."""
        self.write_recovery_points()
        self.write_log_start_offsets()
        self.write_high_watermarks()
        if self._has_cleaner_offsets:
            self.write_cleaner_offsets()

    @property
    def _has_cleaner_offsets(self) -> bool:
        return self._has_cleaner_file or any(
            log.cleaner_offset is not None for log in self._logs.values()
        )

    def write_recovery_points(self, coming: Offsets | None = None) -> None:
        """Write each log's recovery point, also of logs that move in."""
        self._write(RECOVERY_POINT_CHECKPOINT, coming)

    def write_high_watermarks(self) -> None:
        """Write each log's high watermark."""
        self._write(HIGH_WATERMARK_CHECKPOINT)

    def write_cleaner_offsets(self, *coming: Log) -> None:
        """Write up to where each log was cleaned, also of logs that move in."""
        self._has_cleaner_file = True
        self._write(CLEANER_OFFSET_CHECKPOINT, _offsets(coming, _cleaner_offset))

    def write_log_start_offsets(self, *coming: Log) -> None:
        """Write the log start offsets that are not base offsets, also of logs that move in."""
        self._write(LOG_START_OFFSET_CHECKPOINT, _offsets(coming, _log_start_offset))

    def write_all_in_steps(self) -> Steps[None]:
        """Write all files when logs are deleted; there is one such deletion at a time."""
        for name in _VALUES:
            if name != CLEANER_OFFSET_CHECKPOINT or self._has_cleaner_offsets:
                yield from self.write_in_steps(name, _DELETED_SUFFIX)

    def write_in_steps(self, name: str, suffix: str = _LATER_SUFFIX) -> Steps[None]:
        """Write one of the files as it is now, or a little later.

        Whoever does so at the same time as others takes a suffix of his own.
        """
        if name == CLEANER_OFFSET_CHECKPOINT:
            self._has_cleaner_file = True
        number = self._begin(name)
        entries = self._kept_entries(name)
        value = _VALUES[name]
        for position, log in enumerate(tuple(self._logs.values()), 1):
            if (offset := value(log)) is not None:
                entries.append(offset_entry(log.partition, offset))
            if position % _LOGS_PER_STEP == 0:
                yield None
        path, later = join(self._folder, name), join(self._folder, name + suffix)
        data = self._format(name, entries)
        yield from blocking(lambda: write_whole(self._fs, later, data))
        if number > self._written[name]:
            self._fs.rename(later, path)
            self._written[name] = number
        # Even if a later content has its name already: that may not be on the disk yet.
        yield from blocking(lambda: self._fs.sync_dir(self._folder))

    def _write(self, name: str, coming: Offsets | None = None) -> None:
        number = self._begin(name)
        entries = self._kept_entries(name)
        offsets = _offsets(self._logs.values(), _VALUES[name])
        for partition, offset in (*offsets.items(), *(coming or {}).items()):
            entries.append(offset_entry(partition, offset))
        write_atomically(self._fs, join(self._folder, name), self._format(name, entries))
        self._written[name] = number

    def _begin(self, name: str) -> int:
        self._begun[name] += 1
        return self._begun[name]

    def _kept_entries(self, name: str) -> list[str]:
        kept = self._kept.get(name, {})
        return [offset_entry(each, kept[each]) for each in kept if each not in self._logs]


def _offsets(logs: Iterable[Log], value: Value) -> Offsets:
    return {log.partition: offset for log in logs if (offset := value(log)) is not None}


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
