"""Records of the transaction coordinator.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.protocol.fields import array, int8, int16, int32, int64, string
from dohle.protocol.schema import CoordinatorKey, CoordinatorValue, Struct


class TransactionLogKey(CoordinatorKey, record_type=0, versions="0", flexible="none"):
    transactional_id: str = string("0+")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: tuple[int, ...] = array(int32, "0+")


class TransactionLogValue(CoordinatorValue, record_type=0, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: tuple[PartitionsSchema, ...] | None = array(
        PartitionsSchema, "0+", nullable=True
    )
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)
