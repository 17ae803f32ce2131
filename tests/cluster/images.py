"""What the files of a node say of the cluster, up to an offset of the metadata log."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply
from dohle.metadata.snapshot import snapshot_records
from dohle.protocol.record_framing import decode_metadata_record, encode_metadata_record
from dohle.records.batch import CorruptBatch
from dohle.server.quorum.snapshots import list_snapshots, read_snapshot, snapshot_path
from dohle.storage.files import OsFileSystem
from dohle.storage.segment.batch_scan import scan_batches


def image_at(data: Path, end_offset: int) -> ClusterImage | None:
    """Replay what a node has, up to the record before this offset; None if it has not all."""
    fs, folder = OsFileSystem(), str(data / "__cluster_metadata-0")
    try:
        image = _newest_snapshot(fs, folder, end_offset)
        position = image.offset + 1
        for path in sorted((data / "__cluster_metadata-0").glob("*.log")):
            file = fs.open(str(path))
            try:
                for _, batch in scan_batches(file, 0, file.size()):
                    if batch.last_offset < position:
                        continue
                    if batch.base_offset > position or batch.last_offset >= end_offset:
                        break
                    batch.ensure_valid()
                    values = [] if batch.is_control else [each.value for each in batch]
                    records = [decode_metadata_record(value) for value in values if value]
                    epoch = batch.partition_leader_epoch
                    image, _ = apply(image, records, batch.last_offset, epoch)
                    position = batch.last_offset + 1
            finally:
                file.close()
    except (FileNotFoundError, CorruptBatch):
        # A segment that a snapshot has replaced meanwhile, or a batch that is being written.
        return None
    return image if position == end_offset else None


def _newest_snapshot(fs: OsFileSystem, folder: str, end_offset: int) -> ClusterImage:
    usable = [each for each in list_snapshots(fs, folder) if 0 < each.end_offset <= end_offset]
    if not usable:
        return EMPTY_IMAGE
    newest = usable[-1]
    records = [record for record, _ in read_snapshot(fs, snapshot_path(folder, newest))]
    image, _ = apply(EMPTY_IMAGE, records, newest.end_offset - 1, newest.epoch)
    return image


def digest(image: ClusterImage) -> str:
    """Return the same for images that are equal, whatever the order in which they came to be."""
    encoded = sorted(encode_metadata_record(*each) for each in snapshot_records(image))
    return hashlib.sha256(b"".join(encoded)).hexdigest()
