"""What a leader looks at before it gives a batch offsets: the batch itself, not yet its records."""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import RecordBatch, read_batch
from dohle.storage.config import LogConfig
from dohle.storage.producers.append import AppendOrigin


def check_batches(
    view: memoryview, leader_epoch: int, origin: AppendOrigin, config: LogConfig
) -> list[RecordBatch]:
    """Return the batches in ``view``; KafkaError for the first that a leader may not take.

    A client sends exactly one, counted from offset 0; coordinators and the metadata quorum may
    write several at once. The quorum has put its epoch in: another one is of a leader deposed.
    """
    found: list[RecordBatch] = []
    position = 0
    while position < len(view):
        batch = read_batch(view, position)
        if not isinstance(batch, RecordBatch):
            raise KafkaError(ErrorCode.INVALID_RECORD, f"batch has the old magic {batch.magic}")
        _check_batch(batch, origin, config)
        if origin is AppendOrigin.RAFT_LEADER and batch.partition_leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"batch of epoch {batch.partition_leader_epoch} in epoch {leader_epoch}",
            )
        found.append(batch)
        position += batch.size
    if not found or (origin is AppendOrigin.CLIENT and len(found) > 1):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{len(found)} batches, not one")
    return found


def _check_batch(batch: RecordBatch, origin: AppendOrigin, config: LogConfig) -> None:
    if origin is AppendOrigin.CLIENT and batch.base_offset != 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"base offset is {batch.base_offset}, not 0")
    # A marker is always taken: readers wait for it, whatever the topic's limit has become.
    is_marker = batch.is_control and origin is AppendOrigin.COORDINATOR
    if (
        batch.size > config.max_message_bytes
        and origin is not AppendOrigin.RAFT_LEADER
        and not is_marker
    ):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {batch.size} bytes is above max.message.bytes {config.max_message_bytes}",
        )
    batch.ensure_valid()
    if batch.record_count != batch.last_offset_delta + 1 or batch.record_count <= 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{batch.record_count} records, last offset delta {batch.last_offset_delta}",
        )
    if batch.is_control:
        if origin is AppendOrigin.CLIENT:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    elif batch.producer_id >= 0 and batch.base_sequence < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a producer id needs a sequence")
