"""``__cluster_metadata-0`` as batches of metadata records: the log that the quorum agrees on.

The records of one command are in one batch. What a node does with its log is ``RaftLog``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.uuid import METADATA_TOPIC_ID
from dohle.protocol.errors import UnencodableMessage
from dohle.protocol.record_framing import decode_metadata_record
from dohle.protocol.schema import MetadataRecord
from dohle.raft.membership import ControlRecord
from dohle.records.batch import Batch
from dohle.server.quorum.snapshots import control_records
from dohle.storage.config import LogConfig
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.directory.partition_dirs import CLUSTER_METADATA_TOPIC
from dohle.storage.log import Log

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
    #: When it was appended.
    timestamp: int = -1


def metadata_batch(batch: Batch) -> MetadataBatch:
    """Decode a batch of the log."""
    records: list[MetadataRecord] = []
    control: list[ControlRecord] = []
    if batch.is_control:
        control = control_records(batch)
    else:
        records = [decode_metadata_record(record.value or b"") for record in batch]
    epoch = batch.partition_leader_epoch
    return MetadataBatch(
        records, batch.last_offset, epoch, batch.size, control, batch.max_timestamp
    )


def open_metadata_log(directory: LogDirectory, config: BrokerConfig) -> Log:
    """Open, or create, the metadata log of a directory."""
    log_config = LogConfig(
        cleanup_policy=frozenset(),
        segment_bytes=config.get_int("metadata.log.segment.bytes"),
        segment_ms=2**63 - 1,
        max_message_bytes=2**31 - 1,
    )
    return directory.open_internal(METADATA_PARTITION, METADATA_TOPIC_ID, log_config)
