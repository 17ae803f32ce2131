"""Snapshot files of the metadata log: the image as records, between a header and a footer.

``<end offset, 20 digits>-<epoch, 10 digits>.checkpoint``, where the end offset is the first that
the snapshot does not contain. The file is made of record batches with offsets counted from 0: a
control batch with the header and what the quorum is, batches of metadata records, a control batch
with the footer. It is written as ``….checkpoint.part`` and renamed when it is on the disk; a file
without a footer is incomplete and not used. ``bootstrap.checkpoint`` has the same format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dohle.metadata.decision import VersionedRecord
from dohle.protocol.messages.records.control import SnapshotFooterRecord, SnapshotHeaderRecord
from dohle.protocol.record_framing import (
    decode_metadata_record,
    encode_metadata_record,
    metadata_record_head,
)
from dohle.raft.membership import ControlRecord, Membership
from dohle.raft.values import OffsetAndEpoch
from dohle.records.batch import Batch, CorruptBatch
from dohle.records.builder import BatchBuilder
from dohle.records.control import ControlRecordType, build_control_batch, parse_control
from dohle.storage.files import FileSystem, join, parent
from dohle.storage.segment.batch_scan import scan_batches

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_RECORDS_PER_BATCH = 1_000
_NO_MEMBERSHIP = Membership()


class SnapshotId(OffsetAndEpoch):
    """Where in the log a snapshot stands: the first offset it does not contain, and its epoch."""

    __slots__ = ()

    @property
    def end_offset(self) -> int:
        """The first offset that it does not contain."""
        return self.offset

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def list_snapshots(fs: FileSystem, folder: str) -> list[SnapshotId]:
    """Return the snapshots in a folder, oldest first."""
    found = [_NAME.fullmatch(entry.name) for entry in fs.list_dir(folder)]
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def write_snapshot(
    fs: FileSystem,
    path: str,
    records: Sequence[VersionedRecord],
    membership: Membership = _NO_MEMBERSHIP,
    *,
    epoch: int,
    timestamp: int,
) -> None:
    """Write a snapshot atomically: its file is complete, or there is none."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp).encode(0)
    head = [(ControlRecordType.SNAPSHOT_HEADER, header), *membership.control_records()]
    batches = [build_control_batch(head, timestamp, 0, epoch)]
    offset = len(head)
    for start in range(0, len(records), _RECORDS_PER_BATCH):
        group = records[start : start + _RECORDS_PER_BATCH]
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
        for record, version in group:
            builder.append(timestamp, None, encode_metadata_record(record, version))
        batches.append(builder.build())
        offset += len(group)
    tail = [(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord().encode(0))]
    batches.append(build_control_batch(tail, timestamp, offset, epoch))
    part = path + ".part"
    file = fs.open(part, write=True, create=True)
    try:
        file.truncate(0)
        file.write_all_at(0, batches)
        file.sync()
    finally:
        file.close()
    fs.rename(part, path)
    fs.sync_dir(parent(path))


def control_records(batch: Batch) -> list[ControlRecord]:
    """Return types and values of a control batch."""
    parsed = map(parse_control, batch)
    return [(type, value or b"") for type, value in parsed]


def read_control_records(fs: FileSystem, path: str) -> list[ControlRecord]:
    """Read what a snapshot says of the quorum: its first batch; CorruptBatch if it is damaged."""
    file = fs.open(path)
    try:
        for _, batch in scan_batches(file, 0, file.size()):
            batch.ensure_valid()
            return control_records(batch) if batch.is_control else []
    finally:
        file.close()
    return []


def read_batches(fs: FileSystem, path: str) -> Iterator[list[VersionedRecord]]:
    """Read a snapshot batch by batch; CorruptBatch if it is damaged or has no footer."""
    file = fs.open(path)
    ended = False
    try:
        for _, batch in scan_batches(file, 0, file.size()):
            batch.ensure_valid()
            if batch.is_control:
                types = [parse_control(record)[0] for record in batch]
                ended = ended or ControlRecordType.SNAPSHOT_FOOTER in types
            else:
                values = (record.value for record in batch)
                yield [_decoded(value) for value in values if value is not None]
    finally:
        file.close()
    if not ended:
        raise CorruptBatch(f"{path} has no footer: it is incomplete")


def _decoded(value: bytes) -> VersionedRecord:
    return VersionedRecord(decode_metadata_record(value), metadata_record_head(value).version)


def read_snapshot(fs: FileSystem, path: str) -> list[VersionedRecord]:
    """Read a whole snapshot; CorruptBatch if it is damaged or has no footer."""
    return [record for batch in read_batches(fs, path) for record in batch]


def snapshot_path(folder: str, snapshot: SnapshotId) -> str:
    """Return where a snapshot is."""
    return join(folder, snapshot.file_name)
