"""The metadata log as a member of a quorum keeps it: what the leader has, or is about to have.

A leader appends its own batches, a follower those that it fetched, byte for byte. What is not
committed may be cut off again, and with it what it said of the quorum's members: the newest voters
in the log count, committed or not (R2). A follower that is too far behind gets a snapshot instead
and goes on behind it.

Nothing here is on the disk before a flush; what must wait for one is decided elsewhere (R60).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import PlainSteps
from dohle.protocol.errors import MalformedMessage
from dohle.raft.membership import ControlRecord, Membership, MembershipHistory
from dohle.raft.values import OffsetAndEpoch
from dohle.records.batch import Batch, CorruptBatch, batches
from dohle.records.control import build_control_batch
from dohle.records.errors import InvalidRecord
from dohle.server.quorum.metadata_log import (
    CorruptMetadataLog,
    MetadataBatch,
    metadata_batch,
)
from dohle.server.quorum.snapshot_store import SnapshotStore
from dohle.server.quorum.snapshots import SnapshotId, control_records, read_control_records
from dohle.storage import log_read
from dohle.storage.files import Buffer, FileSystem
from dohle.storage.leader_epochs import UNDEFINED_EPOCH
from dohle.storage.log import Log
from dohle.storage.producers.state import AppendOrigin
from dohle.storage.segment.batch_scan import scan_checked
from dohle.storage.segment.segment_file import LogSlice

logger = logging.getLogger("dohle.server")

#: So much of what was fetched is appended at once.
_APPENDED_BYTES = 256 * 1024


class RaftLog:
    """Log, snapshots and membership of one node, in memory as far as they are asked for often."""

    def __init__(self, fs: FileSystem, log: Log) -> None:
        """Take over a log that was opened; CorruptMetadataLog if it lacks its beginning (R64)."""
        self._fs = fs
        self.log = log
        self.store = SnapshotStore(fs, log.directory, log.files.context.deletions)
        self._memberships = MembershipHistory()
        self._begin_behind_newer_snapshot()
        self.store.remove_before(self.log.log_start_offset)
        if self.log.log_start_offset > 0 and self.store.latest is None:
            raise CorruptMetadataLog(
                f"{self.folder} begins at offset {self.log.log_start_offset} and has no "
                "snapshot of the records before it: copy the newest snapshot (*.checkpoint) of "
                "another node or a backup into this directory"
            )
        self._read_memberships()

    def _begin_behind_newer_snapshot(self) -> None:
        """Complete what a crash interrupted between a download and the cut of the log (R64)."""
        latest, log = self.store.latest, self.log
        if latest is None:
            return
        epoch, end_offset = log.leader_epochs.latest_epoch, log.log_end_offset
        if epoch is None and end_offset == log.log_start_offset == latest.end_offset:
            return
        if (latest.epoch, latest.end_offset) > (epoch or 0, end_offset):
            logger.warning(
                "the metadata log ends at offset %d of epoch %d, before its snapshot %s: it begins"
                " anew behind the snapshot",
                end_offset,
                epoch or 0,
                latest.file_name,
            )
            log.truncate_fully_and_start_at(latest.end_offset)

    def _read_memberships(self) -> None:
        """Read what is said of the quorum, from the newest snapshot to the end of the log."""
        offset = 0
        latest = self.store.latest
        if latest is not None:
            self._note_snapshot(latest)
            offset = latest.end_offset
        for batch in self._control_batches(offset):
            self._memberships.note(batch.last_offset, control_records(batch))

    def _note_snapshot(self, snapshot: SnapshotId) -> None:
        path = self.store.path(snapshot)
        try:
            records = read_control_records(self._fs, path)
        except CorruptBatch as error:
            raise CorruptMetadataLog(
                f"the snapshot {path} of the metadata log is damaged: {error.args[0]}. Restore it "
                "from a backup, or see what `dohle storage recover-metadata` can rebuild"
            ) from error
        self._memberships.note(snapshot.end_offset - 1, records)

    def _control_batches(self, offset: int) -> Iterator[Batch]:
        for segment in self.log.segments.from_offset(offset):
            size = segment.size
            for _, _, _, last_offset, _, _, batch in scan_checked(segment.log_file.file, 0, size):
                if batch is not None and batch.is_control and last_offset >= offset:
                    yield batch

    # What there is

    @property
    def folder(self) -> str:
        """Where the log, its snapshots and the quorum's state are."""
        return self.log.directory

    @property
    def start_offset(self) -> int:
        """The first offset that is left."""
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the log or else in the newest snapshot; else 0 (R75)."""
        latest = self.log.leader_epochs.latest_epoch
        if latest is None:
            snapshot = self.store.latest
            return 0 if snapshot is None else snapshot.epoch
        return latest

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        """Return the largest epoch not above ``epoch``, and where it ends; None above all."""
        found, end_offset = self.log.leader_epochs.end_offset_for(epoch, self.end_offset)
        return None if found == UNDEFINED_EPOCH else OffsetAndEpoch(end_offset, found)

    @property
    def snapshots(self) -> Sequence[SnapshotId]:
        """The complete snapshots, oldest first."""
        return self.store.ids

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot's file in bytes; None if there is none."""
        return self.store.size(SnapshotId(*snapshot_id))

    @property
    def memberships(self) -> MembershipHistory:
        """What the log says of its voters, from the newest snapshot to its end."""
        return self._memberships

    # Appending

    def append_batch(self, batch: bytearray, epoch: int) -> None:
        """Append a batch of this node's own as the leader of an epoch."""
        self.log.append_as_leader(batch, epoch, origin=AppendOrigin.RAFT_LEADER)

    def append_control(
        self, records: Sequence[ControlRecord], epoch: int, timestamp_ms: int
    ) -> int:
        """Append control records as the leader of an epoch, in one batch; return its size."""
        batch = build_control_batch(records, timestamp_ms, leader_epoch=epoch)
        self.append_batch(batch, epoch)
        self._memberships.note(self.end_offset - 1, records)
        return len(batch)

    def append_fetched(self, records: Buffer, epoch: int) -> PlainSteps[None]:
        """Append what the leader of an epoch has sent, as far as it can be used (R54).

        Batches of a later epoch than that, and a batch that is not whole, end it. So does anything
        that is wrong: the next Fetch asks for the same again.
        """
        view, start, group = memoryview(records), 0, list[Batch]()
        size = 0
        try:
            for batch in batches(view):
                if batch.partition_leader_epoch > epoch:
                    break
                self._check(batch, group[-1] if group else None)
                group.append(batch)
                size += batch.size
                if size >= _APPENDED_BYTES:
                    self._append_checked(view[start : start + size], group, epoch)
                    start, size, group = start + size, 0, []
                    yield
        except (CorruptBatch, InvalidRecord, MalformedMessage) as error:
            logger.error(
                "records of the metadata log from the leader of epoch %d cannot be used, and are"
                " asked for again: %s",
                epoch,
                error.args[0],
            )
        if group:
            self._append_checked(view[start : start + size], group, epoch)

    def _check(self, batch: Batch, before: Batch | None) -> None:
        """Look whether a batch is whole and continues the log, or the batch before it."""
        end_offset, last_epoch = self.end_offset, self.log.leader_epochs.latest_epoch or 0
        if before is not None:
            end_offset, last_epoch = before.next_offset, before.partition_leader_epoch
        batch.ensure_valid()
        if batch.base_offset != end_offset:
            raise InvalidRecord(f"a batch begins at {batch.base_offset}, not {end_offset}")
        if batch.partition_leader_epoch < last_epoch:
            raise InvalidRecord(
                f"the batch at {end_offset} has epoch {batch.partition_leader_epoch}, after one of"
                f" epoch {last_epoch}"
            )
        if batch.is_control:
            # What it says must be understood before it is written.
            Membership().after(control_records(batch))

    def _append_checked(self, view: memoryview, group: Sequence[Batch], epoch: int) -> None:
        self.log.append_as_follower(view, epoch, origin=AppendOrigin.RAFT_FOLLOWER)
        for batch in group:
            if batch.is_control:
                self._memberships.note(batch.last_offset, control_records(batch))

    def truncate_to(self, offset: int) -> None:
        """Remove everything from an offset on; what is committed must not be (R67)."""
        if offset < self.log.high_watermark:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the metadata log cannot be truncated to {offset}: it is committed up to "
                f"{self.log.high_watermark}",
            )
        self.log.truncate_to(offset)
        self._memberships.truncate(offset)

    # Reading

    def batches(self, offset: int) -> Iterator[MetadataBatch]:
        """Return all batches from an offset on, committed or not."""
        for segment in self.log.segments.from_offset(offset):
            for _, batch in segment.reader.batches():
                if batch.last_offset >= offset:
                    yield metadata_batch(batch)

    def slice(self, offset: int, max_bytes: int) -> LogSlice | None:
        """Find what a Fetch from an offset returns, uncommitted records included (R50).

        At least one batch; None if there is none, or the log does not reach back so far.
        """
        if not self.start_offset <= offset < self.end_offset:
            return None
        return log_read.read(self.log, offset, max_bytes, min_one_batch=True).slice

    # Snapshots

    def install(self, snapshot: SnapshotId) -> None:
        """Go on behind a downloaded snapshot, which is complete on the disk (R57).

        If the log goes on behind it anyway, it stays.
        """
        self.store.note(snapshot)
        end = self.end_of_epoch(snapshot.epoch)
        if end is not None and end.epoch == snapshot.epoch and end.offset >= snapshot.end_offset:
            # Own records of the same epoch reach as far: they are the same.
            self.log.update_high_watermark(max(self.log.high_watermark, snapshot.end_offset))
            return
        self.log.truncate_fully_and_start_at(snapshot.end_offset)
        self.store.remove_before(snapshot.end_offset)
        self._memberships = MembershipHistory()
        self._note_snapshot(snapshot)

    def forget_before(self, snapshot: SnapshotId) -> None:
        """Remove the older snapshots, and the segments that this one covers (R99)."""
        end_offset, log = snapshot.end_offset, self.log
        self.store.remove_before(end_offset)
        log.increment_log_start_offset(end_offset)
        covered = [
            segment
            for segment, after in pairwise(list(log.segments))
            if after.base_offset <= end_offset
        ]
        if covered:
            log.remove_segments(covered, f"snapshot at {end_offset}")


def whole_batches(piece: LogSlice, max_bytes: int) -> bytes | memoryview:
    """Read a slice without the batch that it cuts off at its end; this may block."""
    data = piece.read()
    if piece.size < max_bytes:
        # It ends with its segment.
        return data
    size = sum(batch.size for batch in batches(data))
    return memoryview(data)[:size]
