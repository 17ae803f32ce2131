"""``__cluster_metadata-0`` as batches of metadata records: the log that the quorum agrees on.

The records of one command are one batch. The quorum says who may append and when a batch is
committed; this only writes, syncs and reads, and removes segments that a snapshot covers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.core.seams import Clock
from dohle.core.steps import PlainSteps
from dohle.core.uuid import METADATA_TOPIC_ID
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.errors import UnencodableMessage
from dohle.protocol.messages.records.control import (
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
)
from dohle.protocol.record_framing import decode_metadata_record, encode_metadata_record
from dohle.protocol.schema import MetadataRecord
from dohle.raft.membership import ControlRecord, Membership
from dohle.records.batch import Batch
from dohle.records.builder import BatchBuilder
from dohle.records.control import ControlRecordType, build_control_batch
from dohle.server.quorum.snapshots import control_records, list_snapshots
from dohle.storage.config import LogConfig
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.partition_dirs import CLUSTER_METADATA_TOPIC
from dohle.storage.files import FileSystem
from dohle.storage.flush import FlushJob
from dohle.storage.log import Log
from dohle.storage.producers.state import AppendOrigin

logger = logging.getLogger("dohle.server")

METADATA_PARTITION = TopicPartition(TopicName(CLUSTER_METADATA_TOPIC), 0)


class UnrecordableChange(KafkaError):
    """A change that the metadata log cannot hold; nothing was written."""

    def __init__(self, reason: UnencodableMessage) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, f"the change cannot be recorded: {reason}")


class CorruptMetadataLog(Exception):
    """The metadata log cannot be read; the text says where, and what to do."""


class MetadataBatch(NamedTuple):
    """A batch of the log, as it is replayed into an image."""

    #: Empty for a control batch.
    records: Sequence[MetadataRecord]
    last_offset: int
    epoch: int
    size: int
    #: What a control batch says to the quorum itself.
    control: Sequence[ControlRecord] = ()


def metadata_batch(batch: Batch) -> MetadataBatch:
    """Decode a batch of the log."""
    records: list[MetadataRecord] = []
    control: list[ControlRecord] = []
    if batch.is_control:
        control = control_records(batch)
    else:
        records = [decode_metadata_record(record.value or b"") for record in batch]
    epoch = batch.partition_leader_epoch
    return MetadataBatch(records, batch.last_offset, epoch, batch.size, control)


class MetadataLog:
    """The metadata log on this node's disk."""

    def __init__(
        self, fs: FileSystem, directory: LogDirectory, config: BrokerConfig, clock: Clock
    ) -> None:
        self._clock = clock
        log_config = LogConfig(
            cleanup_policy=frozenset(),
            segment_bytes=config.get_int("metadata.log.segment.bytes"),
            segment_ms=2**63 - 1,
            max_message_bytes=2**31 - 1,
        )
        self.log: Log = directory.open_internal(METADATA_PARTITION, METADATA_TOPIC_ID, log_config)
        snapshots = list_snapshots(fs, self.folder)
        if snapshots and snapshots[-1].end_offset > self.log.log_end_offset:
            logger.warning(
                "the metadata log ends at offset %d, before the end of its snapshot %s: it begins"
                " anew behind the snapshot",
                self.log.log_end_offset,
                snapshots[-1].file_name,
            )
            self.log.truncate_fully_and_start_at(snapshots[-1].end_offset)

    @property
    def folder(self) -> str:
        """Where the log, its snapshots and the quorum's state are."""
        return self.log.directory

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last record; 0 if there is none."""
        return self.log.leader_epochs.latest_epoch or 0

    # Writing

    def append(self, records: Sequence[VersionedRecord], epoch: int) -> PlainSteps[MetadataBatch]:
        """Append the records of one command as one batch, in the last of many steps.

        Raises UnrecordableChange, and writes nothing, if one of them holds what no record can.
        """
        builder = BatchBuilder(partition_leader_epoch=epoch)
        now_ms = self._clock.now_ms()
        for record, version in records:
            try:
                builder.append(now_ms, None, encode_metadata_record(record, version))
            except UnencodableMessage as error:
                raise UnrecordableChange(error) from error
            yield
        return self._append(builder.build(), epoch, [record for record, _ in records])

    def append_leader_change(
        self,
        epoch: int,
        leader_id: BrokerId,
        voter_ids: Sequence[BrokerId],
        membership: Membership | None,
    ) -> MetadataBatch:
        """Append the record that begins an epoch, with the voters that elected the leader.

        Behind it, in the same batch, comes what the log is to say of the quorum.
        """
        voters = tuple(LeaderChangeMessageVoter(voter_id=voter) for voter in voter_ids)
        message = LeaderChangeMessage(leader_id=leader_id, voters=voters, granting_voters=voters)
        control = [(ControlRecordType.LEADER_CHANGE, message.encode(0))]
        if membership is not None:
            control += membership.control_records()
        return self._append_control(control, epoch)

    def append_membership(self, epoch: int, membership: Membership) -> MetadataBatch:
        """Append what the quorum is from now on."""
        return self._append_control(membership.control_records(), epoch)

    def _append_control(self, control: Sequence[ControlRecord], epoch: int) -> MetadataBatch:
        batch = build_control_batch(control, self._clock.now_ms(), leader_epoch=epoch)
        return self._append(batch, epoch, ())._replace(control=control)

    def _append(
        self, batch: bytearray, epoch: int, records: Sequence[MetadataRecord]
    ) -> MetadataBatch:
        self.log.append_as_leader(batch, epoch, origin=AppendOrigin.RAFT_LEADER)
        return MetadataBatch(records, self.log.log_end_offset - 1, epoch, len(batch))

    def prepare_flush(self) -> FlushJob | None:
        """Return the job that syncs everything appended so far to the disk; None if it is there."""
        return self.log.prepare_flush()

    def complete_flush(self, job: FlushJob) -> None:
        """Note that a job has run."""
        self.log.complete_flush(job)

    def commit(self, end_offset: int) -> None:
        """Note that everything below the offset is committed."""
        self.log.update_high_watermark(end_offset)

    # Reading

    def batches(self, offset: int) -> Iterator[MetadataBatch]:
        """Return the batches from an offset on."""
        for segment in self.log.segments.from_offset(offset):
            for _, batch in segment.reader.batches():
                if batch.last_offset < offset:
                    continue
                yield metadata_batch(batch)

    # Removing

    def forget_before(self, offset: int) -> None:
        """Remove the segments that are covered by a snapshot with this end offset."""
        log = self.log
        log.increment_log_start_offset(offset)
        segments = list(log.segments)
        covered = [segment for segment, after in pairwise(segments) if after.base_offset <= offset]
        if covered:
            log.remove_segments(covered, f"snapshot at {offset}")

    def close(self) -> None:
        """Close the files cleanly."""
        self.log.close()
