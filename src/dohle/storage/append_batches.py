"""The batches of an append, before they are written: checked, and given offsets and an epoch.

The records inside are not checked here.
"""

from __future__ import annotations

from collections.abc import Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition
from dohle.records.batch import (
    Batch,
    RecordBatch,
    batches,
    read_batch,
    set_base_offset_and_epoch,
    stamp_log_append_time,
)
from dohle.storage.config import LogConfig
from dohle.storage.leader_epochs import LeaderEpochs
from dohle.storage.producers.append import AppendOrigin


def check_batches(
    view: memoryview, leader_epoch: int, origin: AppendOrigin, config: LogConfig
) -> list[RecordBatch]:
    """Return the batches in ``view``; KafkaError for the first that a leader must refuse.

    A client sends exactly one, with offsets from 0; coordinators and the metadata quorum may write
    several at once. The quorum's batches have its epoch: another epoch is that of a past leader.
    """
    found: list[RecordBatch] = []
    position = 0
    while position < len(view):
        batch = read_batch(view, position)
        if not isinstance(batch, RecordBatch):
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch has the old magic {batch.magic}")
        _check_batch(batch, origin, config)
        if origin is AppendOrigin.RAFT_LEADER and batch.partition_leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the batch has epoch {batch.partition_leader_epoch}, not {leader_epoch}",
            )
        found.append(batch)
        position += batch.size
    if not found or (origin is AppendOrigin.CLIENT and len(found) > 1):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"there must be one batch, not {len(found)}")
    return found


def _check_batch(batch: RecordBatch, origin: AppendOrigin, config: LogConfig) -> None:
    if origin is AppendOrigin.CLIENT and batch.base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the base offset is {batch.base_offset}, not 0")
    # A marker is always accepted: readers wait for it, whatever the topic's limit is now.
    is_marker = batch.is_control and origin is AppendOrigin.COORDINATOR
    if (
        batch.size > config.max_message_bytes
        and origin is not AppendOrigin.RAFT_LEADER
        and not is_marker
    ):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {batch.size} bytes, above max.message.bytes {config.max_message_bytes}",
        )
    batch.ensure_valid()
    if batch.record_count != batch.last_offset_delta + 1 or batch.record_count <= 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch has {batch.record_count} records, but last offset delta"
            f" {batch.last_offset_delta}",
        )
    if batch.is_control:
        if origin is AppendOrigin.CLIENT:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    elif batch.producer_id >= 0 and batch.base_sequence < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a producer id needs a sequence")


def assign_offsets(
    found: Sequence[RecordBatch],
    view: memoryview,
    offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> None:
    """Give batches offsets from ``offset`` on and the leader epoch, in place.

    An ``append_time_ms`` of -1 leaves the timestamps as they are.
    """
    position = 0
    for batch in found:
        set_base_offset_and_epoch(view, position, offset, leader_epoch)
        batch.base_offset = offset
        batch.partition_leader_epoch = leader_epoch
        if append_time_ms >= 0:
            stamp_log_append_time(view, position, append_time_ms)
            batch.max_timestamp = append_time_ms
        offset = batch.last_offset + 1
        position += batch.size


def follower_batches(
    view: memoryview, leader_epoch: int, log_end_offset: int, partition: TopicPartition
) -> tuple[list[Batch], int]:
    """Return the whole batches that a leader sent, checked, and how many bytes they take.

    A batch with a higher epoch than that of the fetch, and all batches behind it, are left out:
    they came from a later leader.
    """
    found: list[Batch] = []
    size, previous_offset = 0, log_end_offset - 1
    for batch in batches(view):
        if batch.partition_leader_epoch > leader_epoch:
            break
        batch.ensure_valid()
        first = batch.base_offset if batch.magic >= 2 else batch.last_offset
        if first <= previous_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{partition}: offset {first} does not follow {previous_offset}",
            )
        previous_offset = batch.last_offset
        size += batch.size
        found.append(batch)
    return found, size


def note_epoch(leader_epochs: LeaderEpochs, batch: Batch) -> None:
    """Note the epoch of a batch that is about to be written."""
    epoch = batch.partition_leader_epoch
    if batch.magic >= 2:
        latest = leader_epochs.latest_epoch
        if epoch >= 0 and (latest is None or epoch > latest):
            leader_epochs.assign(epoch, batch.base_offset)
    elif leader_epochs.entries:
        # Old formats carry no epoch, so no entry can be trusted from here on.
        leader_epochs.clear()
