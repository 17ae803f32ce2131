"""Messages of formats 0 and 1, which Kafka wrote before 0.11 and still reads.

There are no batches in these formats. Each message has an offset and a checksum of its own; a
compressed set is a message (the wrapper) whose value is a compressed run of messages and whose
offset is that of the last of them. Inside, format 0 has absolute offsets, format 1 offsets relative
to the first. Either kind of entry is a :class:`LegacyBatch`, which implements
:class:`dohle.records.batch.Batch`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from dohle.core.ids import NO_PRODUCER_ID
from dohle.records.compression.codecs import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    codec_of,
    decompress,
)
from dohle.records.errors import CorruptBatch, InvalidRecord, WrongChecksum
from dohle.records.record import NO_TIMESTAMP, Record, TimestampType

#: The smallest size of a message, not counting offset and size: format 0, no key, no value.
MESSAGE_SIZE_MIN = 14

LOG_OVERHEAD = 12  # offset and size
_ENTRY = struct.Struct(">qiIBB")  # offset, size, crc, magic, attributes
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_OFFSET_AND_SIZE = struct.Struct(">qi")
_CHECKED_AT = 16  # the checksum covers what follows it, from the magic on
_CODEC_MASK = 0x07
_LOG_APPEND_TIME_FLAG = 0x08
#: The size of a message without key and value, not counting offset and size, by format.
_OVERHEAD = (14, 22)


class LegacyBatch:
    """One entry of a message set: a single message, or a wrapper with compressed ones inside."""

    __slots__ = (
        "_base_offset",
        "attributes",
        "buffer",
        "crc",
        "last_offset",
        "magic",
        "max_timestamp",
        "size",
    )

    buffer: memoryview
    size: int
    last_offset: int
    crc: int
    magic: int
    attributes: int
    max_timestamp: int

    partition_leader_epoch = -1
    producer_id = NO_PRODUCER_ID
    producer_epoch = -1
    base_sequence = -1
    last_sequence = -1
    is_transactional = False
    is_control = False

    def __init__(self, buffer: memoryview, position: int = 0) -> None:
        """View the entry at ``position``, which must be complete."""
        self.last_offset, size, self.crc, self.magic, self.attributes = _ENTRY.unpack_from(
            buffer, position
        )
        if self.magic > 1:
            raise CorruptBatch(
                f"format {self.magic} at position {position} is not 0 or 1", position
            )
        if size < _OVERHEAD[self.magic]:
            raise CorruptBatch(
                f"the message of {size} bytes at position {position} is smaller than its header",
                position,
            )
        self.size = size + LOG_OVERHEAD
        self.buffer = buffer[position : position + self.size]
        self.max_timestamp = NO_TIMESTAMP
        if self.magic == 1:
            (self.max_timestamp,) = _INT64.unpack_from(buffer, position + _ENTRY.size)
        self._base_offset: int | None = None

    @property
    def base_offset(self) -> int:
        """The first offset; for a compressed set it is only known after decompression."""
        if self._base_offset is None:
            if self.attributes & _CODEC_MASK:
                self._base_offset = next(iter(self)).offset
            else:
                self._base_offset = self.last_offset
        return self._base_offset

    @property
    def next_offset(self) -> int:
        """The offset after the last."""
        return self.last_offset + 1

    @property
    def record_count(self) -> int | None:
        """One, or None for a compressed set, whose messages would have to be counted."""
        return None if self.attributes & _CODEC_MASK else 1

    @property
    def compression(self) -> Codec:
        """How the messages inside are compressed; NONE for a single message."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps; format 0 has none."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & _LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    def ensure_valid(self) -> None:
        """Raise :class:`CorruptBatch` unless the checksum is right."""
        computed = zlib.crc32(self.buffer[_CHECKED_AT:])
        if computed != self.crc:
            raise WrongChecksum(
                f"the message at offset {self.last_offset} has the checksum {self.crc:#010x}, "
                f"but its bytes give {computed:#010x}"
            )

    def messages(self, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[LegacyBatch]:
        """View the messages inside, with their relative offsets; a single message is its own."""
        codec = self.compression
        if codec is Codec.NONE:
            return [self]
        compressed = self.compressed_messages()
        data = decompress(codec, compressed, max_bytes, message_format_0=self.magic == 0)
        messages = _inner_messages(memoryview(data))
        if not messages:
            raise InvalidRecord(f"the compressed set at offset {self.last_offset} is empty")
        return messages

    def compressed_messages(self) -> bytes:
        """Return the value of a compressed set."""
        if self.compression is Codec.ZSTD:
            raise InvalidRecord(f"zstd is not a codec of format {self.magic}")
        _, compressed = self.key_and_value()
        if compressed is None:
            raise InvalidRecord(f"the compressed message at offset {self.last_offset} has no value")
        return compressed

    def records(self, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Decode the message, or those inside it with a limit on what they decompress to."""
        if self.attributes & _CODEC_MASK:
            yield from self._inner_records(self.messages(max_bytes))
            return
        key, value = self.key_and_value()
        yield Record(self.last_offset, self.max_timestamp, key, value)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def __repr__(self) -> str:
        return (
            f"LegacyBatch(magic={self.magic}, last_offset={self.last_offset}, size={self.size}, "
            f"attributes={self.attributes:#x})"
        )

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """Read the key and the value, which must fill the message."""
        position = LOG_OVERHEAD + _OVERHEAD[self.magic] - 8
        key, position = self._read_bytes(position)
        value, position = self._read_bytes(position)
        if position != self.size:
            raise InvalidRecord(
                f"the message at offset {self.last_offset} takes {self.size} bytes, "
                f"but its fields end at byte {position}"
            )
        return key, value

    def _read_bytes(self, position: int) -> tuple[bytes | None, int]:
        if position + 4 > self.size:
            raise InvalidRecord(f"the message at offset {self.last_offset} ends within a length")
        (length,) = _INT32.unpack_from(self.buffer, position)
        position += 4
        if length < 0:
            return None, position
        end = position + length
        if end > self.size:
            raise InvalidRecord(
                f"a field of {length} bytes runs past the message at offset {self.last_offset}"
            )
        return bytes(self.buffer[position:end]), end

    def _inner_records(self, messages: list[LegacyBatch]) -> Iterator[Record]:
        """Decode the messages of a compressed set.

        The offset of the first follows from that of the last, so all headers are read before the
        first record is returned. An outer offset of 0 means that the set has not been appended yet:
        some producers leave it at that.
        """
        base = 0
        if self.magic == 1 and self.last_offset != 0:
            base = self.last_offset - messages[-1].last_offset
            if base < 0:
                raise InvalidRecord(
                    f"a compressed set at offset {self.last_offset} cannot end with the relative "
                    f"offset {messages[-1].last_offset}"
                )
        append_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        for message in messages:
            if message.attributes & _CODEC_MASK:
                raise InvalidRecord("a compressed set holds a message that is compressed itself")
            key, value = message.key_and_value()
            timestamp = message.max_timestamp
            if append_time and message.magic == 1:
                timestamp = self.max_timestamp
            yield Record(base + message.last_offset, timestamp, key, value)


def _inner_messages(data: memoryview) -> list[LegacyBatch]:
    """View the messages of a decompressed set; like Kafka, skip an incomplete last one."""
    messages = []
    position = 0
    while len(data) - position >= _ENTRY.size:
        (size,) = _INT32.unpack_from(data, position + 8)
        if size < MESSAGE_SIZE_MIN:
            raise CorruptBatch(f"a message of {size} bytes inside a compressed set")
        if size > len(data) - position - LOG_OVERHEAD:
            break
        message = LegacyBatch(data, position)
        messages.append(message)
        position += message.size
    return messages


def message_flags(magic: int, timestamp_type: TimestampType) -> int:
    """Return the attributes of a message that is not compressed."""
    is_append_time = magic == 1 and timestamp_type is TimestampType.LOG_APPEND_TIME
    return _LOG_APPEND_TIME_FLAG if is_append_time else 0


def encode_message(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Encode one message, or a wrapper around compressed ones."""
    checked = bytearray((magic, attributes))
    if magic == 1:
        checked += _INT64.pack(timestamp)
    for field in (key, value):
        if field is None:
            checked += _INT32.pack(-1)
        else:
            checked += _INT32.pack(len(field))
            checked += field
    crc = zlib.crc32(checked)
    return _OFFSET_AND_SIZE.pack(offset, len(checked) + 4) + _UINT32.pack(crc) + checked
