"""Conversion of what a log holds to formats 0 and 1, for old consumers.

Fetch before version 4 knows only formats 0 and 1. Headers and control batches do not exist there
and are left out, records of aborted transactions cannot be recognised and stay, and zstd cannot be
expressed. Batches keep their codec, records their offsets. Whole batches are converted until the
limit is reached, and at least one, so that a consumer always makes progress.

It is done in steps (``core.steps``), and what a batch decompresses to is read piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterable

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import Room, Steps
from dohle.records.batch import Batch, RecordBatch, batches
from dohle.records.checking.record_reader import RecordReader
from dohle.records.compression.codecs import Codec, decompressing
from dohle.records.compression.compressor import COMPRESSOR_BYTES, Compressor
from dohle.records.errors import InvalidRecord
from dohle.records.legacy import encode_message, message_flags
from dohle.records.record import NO_TIMESTAMP, ONE_BYTE_VARINTS
from dohle.records.varint import read_varint, read_varlong

#: How many records are converted in one step.
_RECORDS_PER_STEP = 128

#: A record's offset, timestamp, key and value.
_Row = tuple[int, int, bytes | None, bytes | None]


def converting_down(
    records: memoryview | bytes | bytearray,
    to_magic: int,
    *,
    first_offset: int,
    max_bytes: int | None = None,
) -> Steps[bytes]:
    """Convert what a log holds for a consumer that asked for ``first_offset``.

    Uncompressed records before that offset are left out; the result may be empty. A zstd batch is
    refused if it comes first, and ends the result otherwise.
    """
    if to_magic not in (0, 1):
        raise ValueError(f"old consumers know the formats 0 and 1, not {to_magic}")
    converted: list[bytes] = []
    size = 0
    for batch in batches(records):
        if batch.is_control:
            continue
        if batch.compression is Codec.ZSTD:
            if converted:
                break
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"offset {batch.base_offset} is compressed with zstd, which needs version 10 of "
                "Fetch",
            )
        if batch.magic <= to_magic:
            piece = bytes(batch.buffer)
        else:
            piece = yield from _converting(batch, to_magic, first_offset)
        size += len(piece)
        if max_bytes is not None and size > max_bytes and converted:
            break
        if piece:
            converted.append(piece)
        yield None
    return b"".join(converted)


def _converting(batch: Batch, to_magic: int, first_offset: int) -> Steps[bytes]:
    codec = batch.compression
    conversion = _Conversion(batch, to_magic, codec, first_offset)
    if not isinstance(batch, RecordBatch):
        rows = [(one.offset, one.timestamp, one.key, one.value) for one in batch.records()]
        for start in range(0, len(rows), _RECORDS_PER_STEP):
            conversion.write(rows[start : start + _RECORDS_PER_STEP])
            yield None
        return conversion.finish()
    reader = RecordReader(b"", 0, 0, decompressing(codec, batch.records_buffer))
    room = Room(COMPRESSOR_BYTES, is_for_output=True)
    count = batch.record_count
    try:
        if count > _RECORDS_PER_STEP and (yield from reader.has_more()):
            yield room
        while count > 0:
            rows, is_doubtful = _read_some(reader, min(count, _RECORDS_PER_STEP), batch)
            if is_doubtful and not rows:
                rows = [(yield from _reading_one(reader, batch))]
            count -= len(rows)
            conversion.write(rows)
            yield None
        if (yield from reader.has_more()):
            raise InvalidRecord("more bytes follow the records of a batch")
        return conversion.finish()
    finally:
        reader.close()
        room.release()


def _read_some(reader: RecordReader, limit: int, batch: RecordBatch) -> tuple[list[_Row], bool]:
    """Read records that are whole in memory; tell whether the next one is not."""
    data, at, end = reader.data, reader.position, reader.end
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    one_byte = ONE_BYTE_VARINTS
    rows: list[_Row] = []
    for _ in range(limit):
        try:
            if (length := one_byte[data[at]]) is not None:
                at += 1
            else:
                length, at = read_varint(data, at)
            record_end = at + length
            if length < 0 or record_end > end:
                return rows, True
            at += 1  # after the attributes
            if (timestamp := one_byte[data[at]]) is not None:
                at += 1
            else:
                timestamp, at = read_varlong(data, at)
            if (offset := one_byte[data[at]]) is not None:
                at += 1
            else:
                offset, at = read_varint(data, at)
            key, value = _key_and_value(bytes(data[at:record_end]))
        except (IndexError, InvalidRecord):
            return rows, True
        rows.append((base_offset + offset, base_timestamp + timestamp, key, value))
        reader.position = at = record_end
    return rows, False


def _reading_one(reader: RecordReader, batch: RecordBatch) -> Steps[_Row]:
    """Read a record that may be in several pieces, or be wrong."""
    head = yield from reader.head()
    parts: list[bytes] = []
    while left := head.end - reader.place:
        if left < 0:
            raise InvalidRecord(f"a record ends at byte {reader.place} and not at byte {head.end}")
        parts += yield from reader.copy(left)
        yield None
    key, value = _key_and_value(b"".join(parts))
    return (
        batch.base_offset + head.offset_delta,
        batch.base_timestamp + head.timestamp_delta,
        key,
        value,
    )


def _key_and_value(rest: bytes) -> tuple[bytes | None, bytes | None]:
    """Read what follows the offset delta of a record, without its headers."""
    key = value = None
    length, at = read_varint(rest, 0)
    if length >= 0:
        key = rest[at : at + length]
        at += length
    length, at = read_varint(rest, at)
    if length >= 0:
        value = rest[at : at + length]
        at += length
    if at >= len(rest):
        raise InvalidRecord("a record runs past its end")
    return key, value


class _Conversion:
    """The messages of a batch so far."""

    def __init__(self, batch: Batch, to_magic: int, codec: Codec, first_offset: int) -> None:
        self._to_magic = to_magic
        self._codec = codec
        self._first_offset = first_offset
        self._flags = message_flags(to_magic, batch.timestamp_type)
        self._append_time = batch.max_timestamp
        self._compressor = Compressor(codec, message_format_0=to_magic == 0)
        self._base_offset: int | None = None
        self._last_offset = 0
        self._max_timestamp = NO_TIMESTAMP

    def write(self, rows: Iterable[_Row]) -> None:
        """Write records as messages."""
        magic, flags, codec = self._to_magic, self._flags, self._codec
        entries = []
        for offset, timestamp, key, value in rows:
            # Inside a wrapper the other offsets follow from the last one's, so all records stay.
            if codec is Codec.NONE and offset < self._first_offset:
                continue
            if self._base_offset is None:
                self._base_offset = offset
            self._last_offset = offset
            if flags:
                timestamp = self._append_time
            if timestamp > self._max_timestamp:
                self._max_timestamp = timestamp
            # Inside a wrapper of format 1, offsets are relative to the first.
            if magic == 1 and codec is not Codec.NONE:
                offset -= self._base_offset
            entries.append(encode_message(offset, magic, flags, timestamp, key, value))
        self._compressor.write(b"".join(entries))

    def finish(self) -> bytes:
        """Return the messages, one after the other or in a wrapper."""
        if self._base_offset is None:
            return b""
        messages = b"".join(self._compressor.finish())
        if self._codec is Codec.NONE:
            return messages
        return encode_message(
            self._last_offset,
            self._to_magic,
            self._flags | self._codec,
            self._max_timestamp,
            None,
            messages,
        )
