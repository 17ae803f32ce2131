"""Looking at a metadata log that may be damaged, without changing a byte of it.

Every batch of the log was on the disk before the next one was written. So a crash can spoil the
last batch and no other: bad bytes with good batches behind them, or missing offsets, are damage,
and what is behind them must not be cut off as if it had never counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from dohle.core.ids import TopicName, Uuid
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply
from dohle.protocol.messages.records.cluster_metadata import RemoveTopicRecord, TopicRecord
from dohle.protocol.schema import MetadataRecord
from dohle.raft.membership import Membership
from dohle.records.batch import BATCH_HEADER, HEADER_SIZE, LOG_OVERHEAD, CorruptBatch, RecordBatch
from dohle.server.quorum.metadata_log import MetadataBatch, metadata_batch
from dohle.server.quorum.snapshots import (
    list_snapshots,
    read_batches,
    read_control_records,
    snapshot_path,
)
from dohle.storage.files import File, FileSystem, join
from dohle.storage.segment.batch_scan import scan_batches, scan_checked
from dohle.storage.segment.file_names import LOG_SUFFIX

_SEGMENT = re.compile(r"(\d{20})" + re.escape(LOG_SUFFIX))
#: How far behind a damage is looked for whole batches.
_SEARCH_BYTES_MAX = 64 << 20
_MAGIC_AT = 16


class LogState(Enum):
    """What can be told of a metadata log by its files."""

    #: No batch and no snapshot: there never was one, or it is lost.
    MISSING = "missing"
    WHOLE = "whole"
    #: The last bytes are no batch: a crash while it was written, or damage.
    TORN = "torn"
    #: Batches are missing or unreadable before others that can be read.
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive readable batches of one file."""

    path: str
    start: int
    end: int


@dataclass(slots=True)
class Survey:
    """What the files of a metadata log hold."""

    folder: str
    state: LogState = LogState.MISSING
    #: Where it is torn or damaged, in words.
    problem: str = ""
    #: Behind the last batch that can be read.
    end_offset: int = 0
    #: The end of the newest snapshot; 0 without one.
    snapshot_end: int = 0
    pieces: list[_Piece] = field(default_factory=list)


@dataclass(slots=True)
class Surviving:
    """What can still be known of the metadata."""

    image: ClusterImage
    removed: RemovedTopics
    #: Records that could not be read or applied.
    skipped: int
    membership: Membership = field(default_factory=Membership)


@dataclass(slots=True)
class RemovedTopics:
    """Topics of which the log tells that they were deleted; folders may be left of them."""

    ids: set[Uuid] = field(default_factory=set)
    names: set[TopicName] = field(default_factory=set)
    _known: dict[Uuid, TopicName] = field(default_factory=dict)

    def note(self, records: Iterator[MetadataRecord]) -> None:
        """Take in what was deleted."""
        for record in records:
            if isinstance(record, TopicRecord):
                self._known[record.topic_id] = record.name
                self.names.discard(record.name)
            elif isinstance(record, RemoveTopicRecord):
                self.ids.add(record.topic_id)
                name = self._known.pop(record.topic_id, None)
                if name is not None:
                    self.names.add(name)

    def has(self, topic_id: Uuid | None, name: TopicName) -> bool:
        """Tell whether a folder with this id, or with none and this name, is left of one."""
        return name in self.names if topic_id is None else topic_id in self.ids


def survey(fs: FileSystem, folder: str) -> Survey:
    """Check every batch of the log in a folder, which need not exist."""
    found = Survey(folder)
    if not fs.exists(folder):
        return found
    snapshots = list_snapshots(fs, folder)
    if snapshots:
        found.snapshot_end = snapshots[-1].end_offset
    walk = _Walk(fs, found.pieces)
    for base_offset in _segments(fs, folder):
        walk.segment(join(folder, f"{base_offset:020d}{LOG_SUFFIX}"), base_offset)
    found.end_offset = walk.end_offset or 0
    if walk.problems:
        found.problem = walk.problems[0]
        found.state = LogState.TORN if walk.is_torn else LogState.DAMAGED
    elif found.pieces or found.snapshot_end:
        # A snapshot that ends at 0 was left by ``storage format``: it says who votes, no more.
        found.state = LogState.WHOLE
    return found


def _segments(fs: FileSystem, folder: str) -> list[int]:
    names = (_SEGMENT.fullmatch(entry.name) for entry in fs.list_dir(folder))
    return sorted(int(match[1]) for match in names if match)


class _Walk:
    """A look at one file after the other, which notes the readable pieces and what is wrong."""

    def __init__(self, fs: FileSystem, pieces: list[_Piece]) -> None:
        self._fs = fs
        self._pieces = pieces
        self.problems: list[str] = []
        #: Whether all that is wrong is that the last bytes of all are no batch.
        self.is_torn = False
        self.end_offset: int | None = None

    def segment(self, path: str, base_offset: int) -> None:
        """Look at the next file."""
        file = self._fs.open(path)
        try:
            size, position = file.size(), 0
            if self.end_offset is None or not size:
                self.end_offset = max(base_offset, self.end_offset or 0)
            while position < size:
                position = self._piece(path, file, position, size)
        finally:
            file.close()

    def _piece(self, path: str, file: File, start: int, size: int) -> int:
        """Note the batches from here on; return where the next readable one is, or the end."""
        position, error = start, None
        try:
            for at, length, first, last, *_ in scan_checked(file, start, size):
                if first != self.end_offset:
                    self._problem(f"{path} lacks the offsets {self.end_offset} to {first - 1}")
                position, self.end_offset = at + length, last + 1
        except CorruptBatch as caught:
            error = caught
        if position > start:
            self._pieces.append(_Piece(path, start, position))
            self.is_torn = False
        if error is None:
            return size
        self._problem(f"{path} is damaged at position {position} ({error.args[0]})")
        self.is_torn = len(self.problems) == 1
        following = _next_batch(file, position + 1, size, self.end_offset or 0)
        return size if following is None else following

    def _problem(self, text: str) -> None:
        self.is_torn = False
        self.problems.append(text)


def _next_batch(file: File, start: int, end: int, offset_min: int) -> int | None:
    """Return where the next whole batch of a metadata log begins, if there is one."""
    data = file.read_at(start, min(end - start, _SEARCH_BYTES_MAX))
    at = data.find(2, _MAGIC_AT)
    while at != -1:
        begin = at - _MAGIC_AT
        if begin + HEADER_SIZE > len(data):
            return None
        fields = BATCH_HEADER.unpack_from(data, begin)
        size, attributes, producer_id = fields[1] + LOG_OVERHEAD, fields[5], fields[9]
        if (
            fields[0] >= offset_min
            and HEADER_SIZE <= size <= len(data) - begin
            and 0 <= attributes < 1 << 7
            and producer_id == -1
        ):
            try:
                RecordBatch(memoryview(data)[begin : begin + size], 0).ensure_valid()
                return start + begin
            except CorruptBatch:
                pass
        at = data.find(2, at + 1)
    return None


def read_surviving(fs: FileSystem, found: Survey) -> Surviving:
    """Replay all that can be read: the newest snapshot that is whole, and every readable batch."""
    surviving = Surviving(EMPTY_IMAGE, RemovedTopics(), 0)
    offset = 0
    snapshots = list_snapshots(fs, found.folder) if fs.exists(found.folder) else []
    for snapshot in reversed(snapshots):
        image = EMPTY_IMAGE
        try:
            path = snapshot_path(found.folder, snapshot)
            for versioned in read_batches(fs, path):
                records = [record for record, _ in versioned]
                image, _ = apply(image, records, snapshot.end_offset - 1, snapshot.epoch)
            surviving.membership = Membership().after(read_control_records(fs, path))
        except (CorruptBatch, ValueError):
            surviving.skipped += 1
            continue
        surviving.image, offset = image, snapshot.end_offset
        break
    for batch in read_pieces(fs, found):
        surviving.removed.note(iter(batch.records))
        if batch.last_offset >= offset:
            surviving.membership = surviving.membership.after(batch.control)
            _replay(surviving, batch)
    surviving.image = replace(surviving.image, transaction=None)
    return surviving


def read_pieces(fs: FileSystem, found: Survey) -> Iterator[MetadataBatch]:
    """Yield every batch that can be read, whatever is between them."""
    for piece in found.pieces:
        file = fs.open(piece.path)
        try:
            for _, batch in scan_batches(file, piece.start, piece.end):
                yield metadata_batch(batch)
        finally:
            file.close()


def _replay(surviving: Surviving, batch: MetadataBatch) -> None:
    """Apply a batch; if some of it needs records that are missing, apply the rest of it."""
    offset, epoch = batch.last_offset, batch.epoch
    try:
        surviving.image, _ = apply(surviving.image, batch.records, offset, epoch)
        return
    except (ValueError, KeyError):
        pass
    for record in batch.records:
        try:
            surviving.image, _ = apply(surviving.image, [record], offset, epoch)
        except (ValueError, KeyError):
            surviving.skipped += 1
