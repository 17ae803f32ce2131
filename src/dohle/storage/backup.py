"""A copy of a node's log directories as they were at one moment, taken while the node goes on.

Logs only grow: what a file had at a moment, it has for as long as it is there. So the node says in
one go how far each log has come (``NodeCut``), and whoever wants a copy takes that much of each
file, at leisure. In a compacted log another file may get a segment's name meanwhile: the node says
which file it was, and for a while it is still there under the name of a deleted one. The copy is
what a ``kill -9`` at that moment would have left behind, with all that was acknowledged before:
offsets that groups have committed are not ahead of the records, and no transaction is half there.
Starting a node on it recovers it as after such a stop.

Of the active segment only the log file is copied, and the recovery point is not behind its start:
the first start reads it and makes its indexes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dohle.core.ids import TopicPartition
from dohle.storage.directory.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    write_offsets,
)
from dohle.storage.directory.meta_properties import META_PROPERTIES
from dohle.storage.directory.partition_dirs import (
    CLUSTER_METADATA_TOPIC,
    PARTITION_METADATA,
    NotAPartitionDir,
    PartitionDirKind,
    parse_partition_dir,
)
from dohle.storage.files import FileSystem, file_name, join, parent
from dohle.storage.leader_epochs import LEADER_EPOCH_CHECKPOINT
from dohle.storage.log import Log
from dohle.storage.moves.copy import Piece, ReplicaCopyJob
from dohle.storage.producers.snapshot import snapshot_offset
from dohle.storage.segment.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_file_name,
)
from dohle.storage.segment.segment import LogSegment

#: Of the form of the lines.
_VERSION = 2
#: Of a file that no other will replace, so that nobody need ask.
_ANY_FILE = 0
#: Small files that are replaced in one step or never change.
_KEPT = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, "quorum-state"})
#: A snapshot of the metadata log begins with its end offset.
_METADATA_SNAPSHOT_SUFFIX, _OFFSET_DIGITS = ".checkpoint", 20
_BOOTSTRAP = "bootstrap.checkpoint"
_LOCK = ".lock"


class BackupFailed(Exception):
    """There is no whole copy; the text says why and what to do."""


class SegmentCut(NamedTuple):
    """A segment as it was at one moment."""

    base_offset: int
    size: int
    file_id: int

    @property
    def name(self) -> str:
        """The name of its log file."""
        return segment_file_name(self.base_offset, LOG_SUFFIX)

    def is_at(self, fs: FileSystem, path: str, *, is_closed: bool) -> bool:
        """Tell whether the file of this name is the one that the segment had."""
        try:
            found = fs.stat(path)
        except FileNotFoundError:
            return False
        if self.file_id == _ANY_FILE:
            return True
        # Once it is removed for good, a later file may get its number.
        has_size = found.size == self.size if is_closed else found.size >= self.size
        return has_size and found.file_id == self.file_id


class LogCut(NamedTuple):
    """A log as it was at one moment."""

    #: The path of its folder.
    folder: str
    #: The segments, the active one last.
    segments: tuple[SegmentCut, ...]
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    end_offset: int
    #: Up to where it was cleaned; None if it never was.
    cleaner_offset: int | None

    def beside(self, names: Iterable[str]) -> list[Piece]:
        """Return what is to be copied of a folder's files besides the segments."""
        return [
            Piece(name, 0, None)
            for name in sorted(names)
            if name in _KEPT or self._is_snapshot(name)
        ]

    def _is_snapshot(self, name: str) -> bool:
        """Tell whether it is a snapshot, of producers or of metadata, that is not ahead."""
        offset = snapshot_offset(name)
        if offset is None and name.endswith(_METADATA_SNAPSHOT_SUFFIX):
            digits = name[:_OFFSET_DIGITS]
            offset = int(digits) if digits.isascii() and digits.isdigit() else None
        return offset is not None and offset <= self.end_offset


class CapturedLog(NamedTuple):
    """A log at one moment, in the quickest form; ``cut`` may be asked later."""

    log: Log
    #: Closed segments do not change any more.
    segments: tuple[LogSegment, ...]
    active_bytes: int
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    end_offset: int
    cleaner_offset: int | None
    #: Of the segments, if they may be replaced: what is active now may be closed and cleaned soon.
    file_ids: tuple[int, ...]

    @classmethod
    def of(cls, log: Log) -> CapturedLog:
        """Take note of how far a log has come; nothing of it may be unwritten."""
        segments = log.segments.from_offset(0)
        ids: tuple[int, ...] = ()
        if log.config.compact or log.cleaning is not None:
            with log.disk.guarding_read(f"backing {log.partition} up"):
                ids = tuple(log.fs.stat(segment.path).file_id for segment in segments)
        return cls(
            log,
            segments,
            segments[-1].size,
            log.log_start_offset,
            log.recovery_point,
            log.high_watermark,
            log.log_end_offset,
            log.cleaner_offset,
            ids,
        )

    def cut(self, absolute: Callable[[str], str]) -> LogCut:
        """Return it as it is told to others, who may be in another folder."""
        *closed, active = self.segments
        *ids, active_id = self.file_ids or [_ANY_FILE] * len(self.segments)
        return LogCut(
            absolute(self.log.directory),
            (
                *(
                    SegmentCut(segment.base_offset, segment.size, file_id)
                    for segment, file_id in zip(closed, ids, strict=True)
                ),
                SegmentCut(active.base_offset, self.active_bytes, active_id),
            ),
            self.log_start_offset,
            min(self.recovery_point, active.base_offset),
            self.high_watermark,
            self.end_offset,
            self.cleaner_offset,
        )


class NodeCut(NamedTuple):
    """All logs of a node as they were at one moment."""

    directories: tuple[str, ...]
    logs: tuple[LogCut, ...]


def cut_lines(
    directories: Iterable[str], logs: Iterable[CapturedLog], absolute: Callable[[str], str]
) -> Iterator[str]:
    """Write a cut, a line for each log; ``absolute`` makes paths that anybody understands."""
    told = {"version": _VERSION, "directories": list(map(absolute, directories))}
    yield json.dumps(told) + "\n"
    count = 0
    for captured in logs:
        yield json.dumps(captured.cut(absolute)._asdict()) + "\n"
        count += 1
    yield json.dumps({"logs": count}) + "\n"


def parse_cut(lines: Iterable[str | bytes]) -> NodeCut:
    """Read what ``cut_lines`` has written; BackupFailed if it is not that, or not all of it."""
    try:
        head, *logs, tail = (json.loads(line) for line in lines)
        if head["version"] != _VERSION:
            raise BackupFailed(f"the node answers in version {head['version']}, not {_VERSION}")
        if tail["logs"] != len(logs):
            raise BackupFailed("the node's answer is not complete: try again")
        return NodeCut(tuple(head["directories"]), tuple(map(_parse_log, logs)))
    except (ValueError, TypeError, KeyError) as error:
        raise BackupFailed(f"the node's answer is not understood ({error})") from None


def _parse_log(fields: Mapping[str, Any]) -> LogCut:
    segments = tuple(SegmentCut(*map(int, segment)) for segment in fields["segments"])
    return LogCut(**{**fields, "segments": segments})


def copy_cut(fs: FileSystem, cut: NodeCut, targets: Mapping[str, str]) -> list[str]:
    """Copy all logs of a cut, from each directory to its target; all of it is on the disk then.

    Returns the folders that are not there any more: their topics were deleted meanwhile.
    """
    gone: list[str] = []
    copied: dict[str, list[LogCut]] = {directory: [] for directory in cut.directories}
    for log in cut.logs:
        directory = parent(log.folder)
        target = join(targets[directory], file_name(log.folder))
        fs.make_dirs(target)
        if _copy_log(fs, log, target):
            copied[directory].append(log)
        else:
            fs.remove_tree(target)
            gone.append(log.folder)
    for directory, target in targets.items():
        _finish(fs, directory, target, copied[directory])
    return gone


def _copy_log(fs: FileSystem, log: LogCut, target: str) -> bool:
    try:
        names = [entry.name for entry in fs.list_dir(log.folder)]
    except FileNotFoundError:
        return False
    _copy(fs, log.folder, target, log.beside(names))
    for segment in log.segments:
        is_closed = segment is not log.segments[-1]
        if _copy_segment(fs, log.folder, target, segment, is_closed=is_closed):
            continue
        if not fs.exists(join(log.folder, PARTITION_METADATA)):
            return False
        raise BackupFailed(
            f"{join(log.folder, segment.name)} was deleted before it could be copied: try again,"
            " or let file.delete.delay.ms be longer"
        )
    fs.sync_dir(target)
    return True


def _copy_segment(
    fs: FileSystem, folder: str, target: str, segment: SegmentCut, *, is_closed: bool
) -> bool:
    """Copy a segment; tell whether its file was still to be found."""
    path, copy = join(folder, segment.name), join(target, segment.name)
    if _copy_log_file(fs, folder, target, segment, segment.name, is_closed=is_closed):
        if is_closed:
            kinds = [suffix for suffix in SEGMENT_SUFFIXES if suffix != LOG_SUFFIX]
            indexes = [segment_file_name(segment.base_offset, kind) for kind in kinds]
            missing = _copy(fs, folder, target, [Piece(name, 0, None) for name in indexes])
            if not segment.is_at(fs, path, is_closed=True):
                # They may be of the file that has replaced it. Without, they are made anew.
                for name in set(indexes).difference(missing):
                    fs.remove(join(target, name))
        return True
    # Retention or the cleaner has taken it meanwhile, and for a while it is still there; or the
    # cleaner was just about to give it its name.
    for suffix in (DELETED_SUFFIX, SWAP_SUFFIX):
        name = segment.name + suffix
        if _copy_log_file(fs, folder, target, segment, name, is_closed=is_closed):
            fs.rename(copy + suffix, copy)
            return True
    return False


def _copy_log_file(
    fs: FileSystem, folder: str, target: str, segment: SegmentCut, name: str, *, is_closed: bool
) -> bool:
    """Copy the file of this name, if it is the segment's before and after that."""
    path = join(folder, name)
    return (
        segment.is_at(fs, path, is_closed=is_closed)
        and not _copy(fs, folder, target, [Piece(name, 0, segment.size)])
        and segment.is_at(fs, path, is_closed=is_closed)
    )


def is_metadata(log: LogCut) -> bool:
    """Tell whether it is the metadata log, which is none of the broker's partitions."""
    return file_name(log.folder).startswith(CLUSTER_METADATA_TOPIC)


def _copy(fs: FileSystem, source: str, target: str, pieces: Iterable[Piece]) -> tuple[str, ...]:
    return ReplicaCopyJob(fs, source, target, tuple(pieces), sync=True, keep_mtime=True).run()


def _finish(fs: FileSystem, directory: str, target: str, logs: list[LogCut]) -> None:
    """Write what is kept beside the logs; what makes it a log directory comes last."""
    by_partition = {
        parse_partition_dir(file_name(log.folder)).topic_partition: log
        for log in logs
        if not is_metadata(log)
    }
    offsets: dict[str, dict[TopicPartition, int]] = {
        RECOVERY_POINT_CHECKPOINT: {key: log.recovery_point for key, log in by_partition.items()},
        HIGH_WATERMARK_CHECKPOINT: {key: log.high_watermark for key, log in by_partition.items()},
        LOG_START_OFFSET_CHECKPOINT: {
            key: log.log_start_offset for key, log in by_partition.items()
        },
    }
    cleaned = {
        key: log.cleaner_offset
        for key, log in by_partition.items()
        if log.cleaner_offset is not None
    }
    if cleaned:
        offsets[CLEANER_OFFSET_CHECKPOINT] = cleaned
    for name, values in offsets.items():
        write_offsets(fs, join(target, name), values)
    _copy(fs, directory, target, [Piece(_BOOTSTRAP, 0, None)])
    fs.sync_dir(target)
    if _copy(fs, directory, target, [Piece(META_PROPERTIES, 0, None)]):
        raise BackupFailed(f"{directory} has no {META_PROPERTIES}")
    fs.sync_dir(target)


def copy_stopped(fs: FileSystem, directory: str, target: str) -> None:
    """Copy a directory that no node uses, as it is; what is on its way out is left."""
    entries = fs.list_dir(directory)
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.is_dir and _is_live(entry.name):
            source, copy = join(directory, entry.name), join(target, entry.name)
            fs.make_dirs(copy)
            names = [one.name for one in fs.list_dir(source) if not one.is_dir]
            kept = [name for name in names if not name.endswith(DELETED_SUFFIX)]
            _copy(fs, source, copy, [Piece(name, 0, None) for name in kept])
            fs.sync_dir(copy)
    files = [entry.name for entry in entries if not entry.is_dir]
    beside = [name for name in files if name not in (META_PROPERTIES, _LOCK)]
    _copy(fs, directory, target, [Piece(name, 0, None) for name in beside])
    fs.sync_dir(target)
    _copy(fs, directory, target, [Piece(META_PROPERTIES, 0, None)])
    fs.sync_dir(target)


def _is_live(name: str) -> bool:
    try:
        return parse_partition_dir(name).kind is PartitionDirKind.LIVE
    except NotAPartitionDir:
        return False
