"""``__cluster_metadata-0`` with a quorum of one: what the controller decides is kept here.

At start the newest snapshot and the records behind it give the image. The node then leads an epoch
of its own, above every earlier one: ``quorum-state`` says so on the disk before the log does in a
LeaderChange record. What one command decided is one batch, and counts once it is on the disk.

Every ``metadata.log.max.record.bytes.between.snapshots`` bytes or
``metadata.log.max.snapshot.interval.ms`` a snapshot is written; segments and snapshots that a newer
snapshot covers go when there is more than ``metadata.max.retention.bytes``, or when they are older
than ``metadata.max.retention.ms``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from itertools import pairwise

from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.core.seams import Clock
from dohle.core.uuid import METADATA_TOPIC_ID
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.delta import Delta
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply
from dohle.metadata.snapshot import snapshot_records
from dohle.protocol.messages.records.control import (
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
)
from dohle.protocol.record_framing import decode_metadata_record, encode_metadata_record
from dohle.protocol.schema import MetadataRecord
from dohle.records.batch import CorruptBatch
from dohle.records.builder import BatchBuilder
from dohle.records.control import ControlRecordType, build_control_batch
from dohle.server.quorum.snapshots import (
    BOOTSTRAP_CHECKPOINT,
    SnapshotId,
    read_snapshot,
    snapshot_ids,
    snapshot_path,
    write_snapshot,
)
from dohle.storage.config import LogConfig
from dohle.storage.directory.directory import CLUSTER_METADATA_TOPIC, LogDirectory
from dohle.storage.files import FileSystem, join, write_atomically
from dohle.storage.flush import FlushJob
from dohle.storage.log import Log
from dohle.storage.producers.state import AppendOrigin

logger = logging.getLogger("dohle.server")

METADATA_PARTITION = TopicPartition(TopicName(CLUSTER_METADATA_TOPIC), 0)
QUORUM_STATE = "quorum-state"


class CorruptMetadataLog(Exception):
    """The metadata log cannot be understood; the text says where and what to do."""


class MetadataLog:
    """The metadata log of a node that is its own quorum."""

    def __init__(
        self,
        fs: FileSystem,
        directory: LogDirectory,
        node_id: BrokerId,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._node_id = node_id
        self._config = config
        self._log_directory = directory
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = clock.now_ms()
        self.image: ClusterImage = EMPTY_IMAGE
        self.log = self._open_log()
        self._load()
        self.epoch = self._lead_new_epoch()

    @property
    def folder(self) -> str:
        """Where the log and its snapshots are."""
        return self.log.directory

    # Start

    def _open_log(self) -> Log:
        config = LogConfig(
            cleanup_policy=frozenset(),
            segment_bytes=self._config.get_int("metadata.log.segment.bytes"),
            segment_ms=2**63 - 1,
            max_message_bytes=2**31 - 1,
        )
        log = self._log_directory.open_internal(METADATA_PARTITION, METADATA_TOPIC_ID, config)
        newest = self._newest_snapshot(log.directory)
        if newest is not None and newest.end_offset > log.log_end_offset:
            logger.warning(
                "the metadata log ends at %d, before its snapshot %s: going on from the snapshot",
                log.log_end_offset,
                newest.file_name,
            )
            log.truncate_fully_and_start_at(newest.end_offset)
        log.update_high_watermark(log.log_end_offset)
        return log

    def _snapshots(self, folder: str) -> list[SnapshotId]:
        return snapshot_ids(entry.name for entry in self._fs.list_dir(folder))

    def _newest_snapshot(self, folder: str) -> SnapshotId | None:
        found = self._snapshots(folder)
        return found[-1] if found else None

    def _load(self) -> None:
        offset = self.log.log_start_offset
        newest = self._newest_snapshot(self.folder)
        if newest is not None:
            path = snapshot_path(self.folder, newest)
            try:
                snapshot = read_snapshot(self._fs, path)
            except CorruptBatch as error:
                raise CorruptMetadataLog(f"{path}: {error.args[0]}") from error
            records = [record for record, _ in snapshot.records]
            self.image, _ = apply(self.image, records, newest.end_offset - 1, newest.epoch)
            offset = max(offset, newest.end_offset)
        elif offset > 0:
            raise CorruptMetadataLog(
                f"{self.folder} begins at offset {offset} and has no snapshot of what was before"
            )
        self._replay_from(offset)

    def _replay_from(self, offset: int) -> None:
        for segment in self.log.segments.from_offset(offset):
            for _, batch in segment.reader.batches():
                if batch.last_offset < offset:
                    continue
                records: list[MetadataRecord] = []
                if not batch.is_control:
                    records = [decode_metadata_record(r.value or b"") for r in batch]
                self.image, _ = apply(
                    self.image, records, batch.last_offset, batch.partition_leader_epoch
                )
                self._bytes_since_snapshot += batch.size

    def bootstrap_records(self) -> list[VersionedRecord] | None:
        """Return the records that a formatter left for a new cluster, if any."""
        path = join(self._log_directory.path, BOOTSTRAP_CHECKPOINT)
        return read_snapshot(self._fs, path).records if self._fs.exists(path) else None

    def _lead_new_epoch(self) -> int:
        path = join(self.folder, QUORUM_STATE)
        known = [self.log.leader_epochs.latest_epoch or 0, self.image.epoch]
        if self._fs.exists(path):
            try:
                known.append(int(json.loads(self._fs.read(path))["leaderEpoch"]))
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptMetadataLog(f"{path} is damaged: {error}") from error
        epoch = max(known) + 1
        state = {
            "clusterId": "",
            "leaderId": self._node_id,
            "leaderEpoch": epoch,
            "votedId": -1,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": self._node_id}],
            "data_version": 0,
        }
        write_atomically(self._fs, path, json.dumps(state, separators=(",", ":")).encode())
        voter = LeaderChangeMessageVoter(voter_id=self._node_id)
        message = LeaderChangeMessage(
            leader_id=self._node_id, voters=(voter,), granting_voters=(voter,)
        )
        batch = build_control_batch(
            [(ControlRecordType.LEADER_CHANGE, message.encode(0))],
            self._clock.now_ms(),
            leader_epoch=epoch,
        )
        self.log.append_as_leader(batch, epoch, origin=AppendOrigin.RAFT_LEADER)
        self.commit_now(())
        return epoch

    # Running

    def append(self, records: Sequence[VersionedRecord]) -> None:
        """Write what one command decided as one batch; it counts once flushed and committed."""
        builder = BatchBuilder(partition_leader_epoch=self.epoch)
        now_ms = self._clock.now_ms()
        for record, version in records:
            builder.append(now_ms, None, encode_metadata_record(record, version))
        batch = builder.build()
        self.log.append_as_leader(batch, self.epoch, origin=AppendOrigin.RAFT_LEADER)
        self._bytes_since_snapshot += len(batch)

    def prepare_flush(self) -> FlushJob | None:
        """Return what has to be synced before ``commit``."""
        return self.log.prepare_flush()

    def commit(self, job: FlushJob | None, records: Sequence[VersionedRecord]) -> Delta:
        """Take what was appended and is on the disk now into the image."""
        if job is not None:
            self.log.complete_flush(job)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.image, delta = apply(
            self.image,
            [record for record, _ in records],
            self.log.log_end_offset - 1,
            self.log.leader_epochs.latest_epoch or 0,
        )
        return delta

    def commit_now(self, records: Sequence[VersionedRecord]) -> Delta:
        """Flush here and now, as at start, and commit."""
        self.log.flush()
        return self.commit(None, records)

    def write_now(self, records: Sequence[VersionedRecord]) -> Delta:
        """Append, flush and commit at once, as at start."""
        self.append(records)
        return self.commit_now(records)

    # Snapshots

    def snapshot_due(self, now_ms: int) -> bool:
        """Tell whether it is time for a snapshot, by bytes or by age."""
        if self._bytes_since_snapshot == 0 or self.image.transaction is not None:
            return False
        bytes_max = self._config.get_int("metadata.log.max.record.bytes.between.snapshots")
        interval_ms = self._config.get_int("metadata.log.max.snapshot.interval.ms")
        if self._bytes_since_snapshot >= bytes_max:
            return True
        return interval_ms > 0 and now_ms - self._last_snapshot_ms >= interval_ms

    def write_snapshot(self) -> SnapshotId:
        """Write the image as it is, and let go of what it makes superfluous."""
        snapshot = SnapshotId(self.image.offset + 1, self.image.epoch)
        now_ms = self._clock.now_ms()
        write_snapshot(
            self._fs,
            snapshot_path(self.folder, snapshot),
            snapshot_records(self.image),
            epoch=snapshot.epoch,
            timestamp=now_ms,
        )
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = now_ms
        self._remove_superfluous(now_ms)
        return snapshot

    def _remove_superfluous(self, now_ms: int) -> None:
        bytes_max = self._config.get_int("metadata.max.retention.bytes")
        ms_max = self._config.get_int("metadata.max.retention.ms")
        snapshots = self._snapshots(self.folder)
        while len(snapshots) > 1:
            stats = [self._fs.stat(snapshot_path(self.folder, s)) for s in snapshots]
            size = self.log.size + sum(stat.size for stat in stats)
            too_large = 0 <= bytes_max < size
            too_old = 0 <= ms_max < now_ms - stats[0].mtime_ms
            if not (too_large or too_old):
                return
            oldest = snapshots.pop(0)
            self._fs.remove(snapshot_path(self.folder, oldest))
            self._forget_before(snapshots[0].end_offset)

    def _forget_before(self, offset: int) -> None:
        log = self.log
        log.increment_log_start_offset(offset)
        segments = list(log.segments)
        covered = [segment for segment, after in pairwise(segments) if after.base_offset <= offset]
        if covered:
            log.remove_segments(covered, f"snapshot at {offset}")

    def close(self) -> None:
        """Close the files cleanly."""
        self.log.close()
