"""Writing a batch anew with only some of its records, byte for byte as Kafka does.

Of a batch of format 2 the header stays, with all that a producer or a reader counts by: base
offset, last offset delta, producer, epoch, base sequence, leader epoch, codec, timestamp type and
flags. The records keep their offsets and times. The base timestamp is the delete horizon if the
batch has one, else the time of the first record that stays: so time deltas may have to change, and
may be negative. Messages of formats 0 and 1 become a batch of format 2.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dohle.core.checksum import crc32c
from dohle.records.batch import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    Batch,
    Codec,
    LegacyBatch,
    Record,
    RecordBatch,
    TimestampType,
)
from dohle.records.builder import BatchBuilder, build_empty_batch
from dohle.records.compression.codecs import compress
from dohle.records.record_columns import RecordColumns, timestamp_deltas, with_timestamp_deltas

_UINT32 = struct.Struct(">I")


def rebuild(
    batch: RecordBatch,
    data: bytes,
    records: RecordColumns,
    kept: Sequence[int],
    horizon_ms: int | None,
) -> bytearray:
    """Return a batch with the records of these numbers, at least one, out of its ``data``."""
    positions = records.positions
    if batch.attributes & LOG_APPEND_TIME_FLAG:
        # Whatever the records say, this is their time.
        deltas = [batch.max_timestamp - batch.base_timestamp] * len(kept)
        max_timestamp = batch.max_timestamp
        changes_all = True
    elif records.has_base_timestamp:
        deltas, max_timestamp, changes_all = [0] * len(kept), batch.base_timestamp, False
    else:
        deltas = timestamp_deltas(data, [positions[number] for number in kept])
        max_timestamp = batch.base_timestamp + max(deltas)
        changes_all = False
    base_timestamp = batch.base_timestamp + deltas[0] if horizon_ms is None else horizon_ms
    shift = batch.base_timestamp - base_timestamp
    if shift or changes_all:
        shifted = [delta + shift for delta in deltas]
        pieces = with_timestamp_deltas(data, positions, kept, shifted)
    else:
        pieces = [data[positions[number] : positions[number + 1]] for number in kept]
    body = b"".join(pieces)
    if batch.compression is not Codec.NONE:
        body = compress(batch.compression, body)
    attributes = batch.attributes & ~DELETE_HORIZON_FLAG
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
    rebuilt = bytearray(HEADER_SIZE) + body
    BATCH_HEADER.pack_into(
        rebuilt,
        0,
        batch.base_offset,
        len(rebuilt) - LOG_OVERHEAD,
        batch.partition_leader_epoch,
        batch.magic,
        0,
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(kept),
    )
    with memoryview(rebuilt) as view:
        crc = crc32c(view[ATTRIBUTES_AT:])
    _UINT32.pack_into(rebuilt, CRC_AT, crc)
    return rebuilt


def empty_batch(batch: Batch) -> bytearray:
    """Return the header of a batch that has lost its records."""
    return build_empty_batch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        max_timestamp=batch.max_timestamp,
        partition_leader_epoch=batch.partition_leader_epoch,
        timestamp_type=batch.timestamp_type,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
    )


def convert(message: LegacyBatch, kept: Sequence[Record]) -> bytearray:
    """Return a batch of format 2 with these records, at least one, of an old message set."""
    is_append_time = message.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = BatchBuilder(
        base_offset=kept[0].offset,
        codec=message.compression,
        log_append_time=message.max_timestamp if is_append_time else None,
    )
    for record in kept:
        builder.append(record.timestamp, record.key, record.value, offset=record.offset)
    # Unlike Kafka, which would let the log end there where the last record is that stays.
    builder.override_last_offset(message.last_offset)
    return builder.build()
