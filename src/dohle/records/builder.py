"""Builds batches of format 2: uncompressed ones are byte for byte what the Java client builds.

The base timestamp is that of the first record (or the delete horizon, if one is set), offsets count
up from the base offset unless they are given, and the header is written last, over the finished
records. The result is a ``bytearray``: the log writes base offset and leader epoch into it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from dohle.core.checksum import crc32c
from dohle.records.batch import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    CONTROL_FLAG,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
)
from dohle.records.compression.codecs import Codec, compress
from dohle.records.errors import InvalidRecord
from dohle.records.record import NO_TIMESTAMP, Header, TimestampType
from dohle.records.varint import INT32_MAX, INT64_MAX, SHORT_VARINTS, encode_varint

#: The largest size of a record's length, attributes, timestamp delta and offset delta.
RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5

#: Below this, all lengths of a record are among SHORT_VARINTS.
_SHORT_RECORD_SIZE = len(SHORT_VARINTS) - RECORD_OVERHEAD_MAX

_UINT32 = struct.Struct(">I")
_ATTRIBUTES = b"\x00"
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


class BatchBuilder:
    """Collects records and builds one batch of them.

    The producer's fields may be set until :meth:`build`: a producer knows its sequence number only
    when it sends the batch. A batch can be built again after they were changed.
    """

    __slots__ = (
        "_base_timestamp",
        "_last_offset",
        "_parts",
        "base_offset",
        "base_sequence",
        "codec",
        "delete_horizon_ms",
        "is_control",
        "is_transactional",
        "level",
        "log_append_time",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "records_size",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        log_append_time: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        delete_horizon_ms: int | None = None,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    ) -> None:
        """Start an empty batch; with ``log_append_time`` the timestamps are of that type."""
        self.base_offset = base_offset
        self.codec = codec
        self.level = level
        self.log_append_time = log_append_time
        self.producer_id: int = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional
        self.is_control = is_control
        self.delete_horizon_ms = delete_horizon_ms
        self.partition_leader_epoch = partition_leader_epoch
        #: The number of records.
        self.record_count = 0
        #: Their size before compression.
        self.records_size = 0
        #: The largest of their timestamps.
        self.max_timestamp = NO_TIMESTAMP
        self._base_timestamp = delete_horizon_ms
        self._last_offset = base_offset - 1
        self._parts: list[bytes] = [bytes(HEADER_SIZE)]

    @property
    def timestamp_type(self) -> TimestampType:
        """Who sets the timestamps."""
        if self.log_append_time is None:
            return TimestampType.CREATE_TIME
        return TimestampType.LOG_APPEND_TIME

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers: that of its last record, unless overridden."""
        return self._last_offset

    @property
    def size(self) -> int:
        """The size of the batch if compression saves nothing."""
        return HEADER_SIZE + self.records_size

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] = (),
        offset: int | None = None,
    ) -> int:
        """Add a record and return its offset: the next one, or the given one if that is larger."""
        last_offset = self._last_offset
        if offset is None:
            offset = last_offset + 1
        elif offset <= last_offset:
            raise InvalidRecord(f"offset {offset} cannot follow offset {last_offset} in a batch")
        offset_delta = offset - self.base_offset
        if offset_delta > INT32_MAX:
            raise InvalidRecord(f"offset {offset} is too far from the base {self.base_offset}")
        if not NO_TIMESTAMP <= timestamp <= INT64_MAX:
            raise InvalidRecord(f"{timestamp} is not a timestamp")
        base_timestamp = self._base_timestamp
        if base_timestamp is None:
            base_timestamp = self._base_timestamp = timestamp
        body = b"".join(
            (
                _ATTRIBUTES,
                encode_varint(timestamp - base_timestamp),
                encode_varint(offset_delta),
                _NULL if key is None else encode_varint(len(key)),
                key or b"",
                _NULL if value is None else encode_varint(len(value)),
                value or b"",
                encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        length = encode_varint(len(body))
        self._parts += (length, body)
        self.records_size += len(length) + len(body)
        self.record_count += 1
        self._last_offset = offset
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return offset

    def append_all(
        self, timestamp: int, records: Sequence[tuple[bytes | None, bytes | None]]
    ) -> None:
        """Add keys and values with the same timestamp, as ``append`` does, but faster."""
        if not records:
            return
        if not NO_TIMESTAMP <= timestamp <= INT64_MAX:
            raise InvalidRecord(f"{timestamp} is not a timestamp")
        offset_delta = self._last_offset - self.base_offset
        if offset_delta + len(records) > INT32_MAX:
            raise InvalidRecord(f"{len(records)} more records do not fit into a batch")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        start = _ATTRIBUTES + encode_varint(timestamp - self._base_timestamp)
        parts: list[bytes] = []
        varints = SHORT_VARINTS
        for key, value in records:
            offset_delta += 1
            if key and value and len(key) + len(value) < _SHORT_RECORD_SIZE:
                key_length, value_length = varints[len(key)], varints[len(value)]
            else:
                key_length = _NULL if key is None else encode_varint(len(key))
                value_length = _NULL if value is None else encode_varint(len(value))
                key, value = key or b"", value or b""
            delta = encode_varint(offset_delta)
            body = b"".join((start, delta, key_length, key, value_length, value, _NO_HEADERS))
            length = encode_varint(len(body))
            parts.append(length)
            parts.append(body)
        # Together: a batch of many small parts takes long to free.
        joined = b"".join(parts)
        self._parts.append(joined)
        self.records_size += len(joined)
        self.record_count += len(records)
        self._last_offset += len(records)
        self.max_timestamp = max(timestamp, self.max_timestamp)

    def append_encoded(
        self, records: bytes, record_count: int, base_timestamp: int, max_timestamp: int
    ) -> None:
        """Add already encoded records, with offset deltas from 0, to an empty batch."""
        if self.record_count or self.delete_horizon_ms is not None:
            raise InvalidRecord("encoded records can only be added to an empty batch")
        self._parts.append(records)
        self.records_size = len(records)
        self.record_count = record_count
        self.max_timestamp = max_timestamp
        self._base_timestamp = base_timestamp
        self._last_offset = self.base_offset + record_count - 1

    def override_last_offset(self, last_offset: int) -> None:
        """Let the batch cover offsets after its last record, as compaction needs."""
        if not self._last_offset <= last_offset <= self.base_offset + INT32_MAX:
            raise InvalidRecord(
                f"a batch with offset {self._last_offset} cannot end at offset {last_offset}"
            )
        self._last_offset = last_offset

    def build(self) -> bytearray:
        """Compress the records and write the header before them."""
        self._check_producer()
        if self._base_timestamp is None or not self.record_count:
            raise ValueError("a batch without records: use build_empty_batch")
        batch = bytearray().join(self._parts)
        if self.codec is not Codec.NONE:
            with memoryview(batch) as view:
                records = compress(self.codec, view[HEADER_SIZE:], self.level)
            batch[HEADER_SIZE:] = records
        self._write_header_of(batch, self._base_timestamp)
        return batch

    def build_around(
        self,
        compressed: Iterable[bytes],
        *,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> bytearray:
        """Write the header before records that are encoded, with deltas from 0, and compressed."""
        self._check_producer()
        self.record_count = record_count
        self.max_timestamp = max_timestamp
        self._last_offset = self.base_offset + record_count - 1
        batch = bytearray().join((bytes(HEADER_SIZE), *compressed))
        self._write_header_of(batch, base_timestamp)
        return batch

    def _write_header_of(self, batch: bytearray, base_timestamp: int) -> None:
        append_time = self.log_append_time
        _write_header(
            batch,
            base_offset=self.base_offset,
            partition_leader_epoch=self.partition_leader_epoch,
            attributes=self.codec
            | (LOG_APPEND_TIME_FLAG if append_time is not None else 0)
            | (TRANSACTIONAL_FLAG if self.is_transactional else 0)
            | (CONTROL_FLAG if self.is_control else 0)
            | (DELETE_HORIZON_FLAG if self.delete_horizon_ms is not None else 0),
            last_offset=self._last_offset,
            base_timestamp=base_timestamp,
            max_timestamp=self.max_timestamp if append_time is None else append_time,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=self.record_count,
        )

    def _check_producer(self) -> None:
        if self.producer_id == NO_PRODUCER_ID:
            if self.is_transactional:
                raise ValueError("a transactional batch needs a producer id")
        elif self.producer_epoch < 0:
            raise ValueError(f"producer {self.producer_id} has no epoch")
        elif self.base_sequence < 0 and not self.is_control:
            raise ValueError(f"the batch of producer {self.producer_id} has no sequence number")


def build_empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp: int,
    partition_leader_epoch: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Build a batch without records, which compaction leaves to keep a producer's last sequence."""
    batch = bytearray(HEADER_SIZE)
    _write_header(
        batch,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=(LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0),
        last_offset=last_offset,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=0,
    )
    return batch


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Encode a record's headers with their count. Like Java, write ``?`` for a lone surrogate."""
    parts = [b""]
    count = 0
    for name, value in headers:
        encoded = name.encode("utf-8", "replace")
        parts += (encode_varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
        count += 1
    parts[0] = encode_varint(count)
    return b"".join(parts)


def _write_header(
    batch: bytearray,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header into the first bytes of an otherwise complete batch."""
    try:
        BATCH_HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LOG_OVERHEAD,
            partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset - base_offset,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
    except struct.error as error:
        raise InvalidRecord(f"a field of the batch does not fit: {error}") from None
    with memoryview(batch) as view:
        crc = crc32c(view[ATTRIBUTES_AT:])
    _UINT32.pack_into(batch, CRC_AT, crc)
