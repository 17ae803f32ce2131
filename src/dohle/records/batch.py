"""Record batches as views over bytes that somebody else owns.

Reading a batch never copies it: :class:`RecordBatch` unpacks the 61-byte header of format 2 once
and keeps a memoryview of exactly its own bytes. Records are decoded only when it is iterated.
Messages of formats 0 and 1 come as :class:`dohle.records.legacy.LegacyBatch`; both kinds implement
:class:`Batch`, which is all that the log needs to know.

The checksum starts at byte 21, after base offset, length, leader epoch, magic and itself: so a
leader can write the base offset and its epoch into a batch without computing a new checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

from dohle.core.checksum import crc32c
from dohle.core.ids import NO_PRODUCER_ID, ProducerId
from dohle.records.compression.codecs import DECOMPRESSED_BYTES_MAX, Codec, codec_of, decompress
from dohle.records.errors import CorruptBatch, IncompleteBatch, InvalidRecord, WrongChecksum
from dohle.records.legacy import MESSAGE_SIZE_MIN, LegacyBatch
from dohle.records.record import Record, TimestampType, decode_records

__all__ = [
    "BATCH_HEADER",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "NO_PARTITION_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "Batch",
    "Codec",
    "CorruptBatch",
    "IncompleteBatch",
    "InvalidRecord",
    "LegacyBatch",
    "Record",
    "RecordBatch",
    "TimestampType",
    "batches",
    "read_batch",
    "sequence_after",
    "set_base_offset_and_epoch",
    "set_create_time",
    "stamp_log_append_time",
]

#: Base offset and length: the bytes before those that the length counts.
LOG_OVERHEAD = 12

#: baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta,
#: baseTimestamp, maxTimestamp, producerId, producerEpoch, baseSequence, recordCount.
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = BATCH_HEADER.size

MAGIC = 2
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

CRC_AT = 17
ATTRIBUTES_AT = 21
CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_MAX_TIMESTAMP_AT = 35
_SEQUENCE_MAX = 2**31 - 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")


class Batch(Protocol):
    """What batches of all formats have in common."""

    @property
    def buffer(self) -> memoryview:
        """Exactly the batch's bytes."""

    @property
    def size(self) -> int:
        """Its size on disk in bytes, including base offset and length."""

    @property
    def magic(self) -> int:
        """The format: 0, 1 or 2."""

    @property
    def base_offset(self) -> int:
        """The first offset it covers."""

    @property
    def last_offset(self) -> int:
        """The last offset it covers, whether or not a record still has it."""

    @property
    def next_offset(self) -> int:
        """The offset after the last."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records, or the time of the append."""

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""

    @property
    def compression(self) -> Codec:
        """How the records are compressed."""

    @property
    def partition_leader_epoch(self) -> int:
        """The epoch of the leader that appended it; -1 before format 2."""

    @property
    def producer_id(self) -> ProducerId:
        """The idempotent producer that sent it, or -1."""

    @property
    def producer_epoch(self) -> int:
        """That producer's epoch, or -1."""

    @property
    def base_sequence(self) -> int:
        """The sequence number of the first record, or -1."""

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1."""

    @property
    def record_count(self) -> int | None:
        """The number of records; ``None`` for a compressed set of formats 0 and 1."""

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""

    @property
    def is_control(self) -> bool:
        """Whether its records are for brokers and clients, not for applications."""

    def ensure_valid(self) -> None:
        """Raise :class:`CorruptBatch` unless the checksum is right."""

    def records(self, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Decode the records one by one, with a limit on what they decompress to."""

    def __iter__(self) -> Iterator[Record]: ...


class RecordBatch:
    """A batch of format 2."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    buffer: memoryview
    size: int
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: memoryview, position: int = 0) -> None:
        """View the batch at ``position``, where a whole header must be."""
        length: int
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = BATCH_HEADER.unpack_from(buffer, position)
        size = length + LOG_OVERHEAD
        if size < HEADER_SIZE:
            raise CorruptBatch(
                f"a batch of {size} bytes at position {position} is smaller than its header",
                position,
            )
        end = position + size
        if end > len(buffer):
            raise IncompleteBatch(
                f"a batch of {size} bytes at position {position} has only "
                f"{len(buffer) - position} bytes",
                position,
            )
        self.size = size
        self.buffer = buffer[position:end]

    @property
    def last_offset(self) -> int:
        """The last offset it covers, whether or not a record still has it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Codec:
        """How the records are compressed."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Whether its records are for brokers and clients, not for applications."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which its tombstones are removed, stored as the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def records_buffer(self) -> memoryview:
        """The bytes after the header: the records, compressed or not."""
        return self.buffer[HEADER_SIZE:]

    def ensure_valid(self) -> None:
        """Raise :class:`CorruptBatch` unless magic and checksum are right."""
        if self.magic != MAGIC:
            raise CorruptBatch(f"a batch of format {self.magic} is read as one of format {MAGIC}")
        computed = crc32c(self.buffer[ATTRIBUTES_AT:])
        if computed != self.crc:
            raise WrongChecksum(
                f"the batch of offsets {self.base_offset} to {self.last_offset} has the checksum "
                f"{self.crc:#010x}, but its bytes give {computed:#010x}"
            )

    def decompressed(self, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
        """Return the records' bytes; more than ``max_bytes`` of them are refused."""
        codec = self.compression
        if codec is Codec.NONE:
            return bytes(self.records_buffer)
        return decompress(codec, self.records_buffer, max_bytes)

    def records(self, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Decode the records one by one, with a limit on what they decompress to."""
        count = self.record_count
        if count < 0:
            raise InvalidRecord(f"a batch cannot have {count} records")
        if count == 0 and self.size == HEADER_SIZE:
            return
        log_append_time = None
        if self.attributes & LOG_APPEND_TIME_FLAG:
            log_append_time = self.max_timestamp
        yield from decode_records(
            self.decompressed(max_bytes),
            count,
            self.base_offset,
            self.base_timestamp,
            log_append_time,
        )

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, size={self.size}, "
            f"records={self.record_count}, attributes={self.attributes:#x}, "
            f"leader_epoch={self.partition_leader_epoch}, producer={self.producer_id}/"
            f"{self.producer_epoch}/{self.base_sequence})"
        )


def read_batch(buffer: memoryview | bytes | bytearray, position: int = 0) -> Batch:
    """View the batch or message that starts at ``position``.

    Raises :class:`IncompleteBatch` if the buffer ends within it, :class:`CorruptBatch` if it cannot
    be a batch. The checksum is not verified: see :meth:`Batch.ensure_valid`.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    remaining = len(view) - position
    if remaining >= HEADER_SIZE and view[position + _MAGIC_AT] == MAGIC:
        return RecordBatch(view, position)
    if remaining < LOG_OVERHEAD:
        raise IncompleteBatch(f"{remaining} bytes at position {position} are no batch", position)
    (length,) = _INT32.unpack_from(view, position + _LENGTH_AT)
    if length < MESSAGE_SIZE_MIN:
        raise CorruptBatch(
            f"the length {length} at position {position} is less than that of the smallest message",
            position,
        )
    if remaining <= _MAGIC_AT:
        raise IncompleteBatch(f"{remaining} bytes at position {position} are no batch", position)
    magic = view[position + _MAGIC_AT]
    if magic > MAGIC:
        raise CorruptBatch(f"unknown message format {magic} at position {position}", position)
    if length > remaining - LOG_OVERHEAD:
        raise IncompleteBatch(
            f"a batch of {length + LOG_OVERHEAD} bytes at position {position} has only "
            f"{remaining} bytes",
            position,
        )
    if magic == MAGIC:
        raise CorruptBatch(
            f"a batch of {length + LOG_OVERHEAD} bytes at position {position} is smaller than "
            "its header",
            position,
        )
    return LegacyBatch(view, position)


def batches(buffer: memoryview | bytes | bytearray, start: int = 0) -> Iterator[Batch]:
    """View the complete batches one after the other; an incomplete one at the end is skipped."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    position = start
    end = len(view)
    while position < end:
        try:
            batch = read_batch(view, position)
        except IncompleteBatch:
            return
        yield batch
        position += batch.size


def set_base_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write a leader's offset and epoch into a batch of format 2; the checksum does not change."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Give the batch of format 2 at ``position`` the time of its append, and a new checksum."""
    (attributes,) = _INT16.unpack_from(buffer, position + ATTRIBUTES_AT)
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_FLAG)
    _set_max_timestamp(buffer, position, timestamp_ms)


def set_create_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Mark timestamps as set by the producer, set the largest, and renew the checksum."""
    (attributes,) = _INT16.unpack_from(buffer, position + ATTRIBUTES_AT)
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes & ~LOG_APPEND_TIME_FLAG)
    _set_max_timestamp(buffer, position, timestamp_ms)


def _set_max_timestamp(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    (length,) = _INT32.unpack_from(buffer, position + _LENGTH_AT)
    end = position + LOG_OVERHEAD + length
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end])
    _UINT32.pack_into(buffer, position + CRC_AT, crc)


def sequence_after(sequence: int, delta: int) -> int:
    """Return the sequence number ``delta`` after another: 0 follows the largest 32-bit number."""
    if sequence > _SEQUENCE_MAX - delta:
        return delta - (_SEQUENCE_MAX - sequence) - 1
    return sequence + delta
