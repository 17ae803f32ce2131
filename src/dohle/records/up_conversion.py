"""Conversion of an old producer's messages, of formats 0 and 1, to a batch of format 2.

The whole message set of a Produce request before version 3 becomes one batch with offsets from
zero. Format 0 has no timestamps, so its records get -1. What is specific to messages is checked
here (checksums, formats), and the rules for single records (``RecordRules``), because of their
order: without compression each message counts as a batch of its own, so the first one that breaks
a rule decides the error; of the messages in a compressed set one wrong timestamp does. Everything
else is up to :func:`dohle.records.checking.validation.validating`, which the new batch has to pass
like any other.

A compressed set is read piece by piece, a message at a time, in steps (``core.steps``): a few bytes
may be millions of messages.
"""

from __future__ import annotations

import struct

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import Room, Steps
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.checking.record_reader import RecordReader
from dohle.records.checking.validation import RECORD_ERRORS_MAX, RecordErrors, RecordRules
from dohle.records.compression.codecs import Codec, decompressing
from dohle.records.compression.compressor import COMPRESSOR_BYTES, Compressor
from dohle.records.errors import CorruptBatch, DecompressedTooLarge, InvalidRecord, WrongFormat
from dohle.records.legacy import (
    LOG_OVERHEAD,
    MESSAGE_SIZE_MIN,
    LegacyBatch,
)
from dohle.records.record import TimestampType
from dohle.records.record_writer import RecordWriter
from dohle.records.varint import encode_varint

#: No message inside a compressed set may be larger: each is put together in memory.
_INNER_BYTES_MAX = 8 * 1024 * 1024
#: How many messages are looked at in one step.
_MESSAGES_PER_STEP = 64

_INT32 = struct.Struct(">i")
#: Offset, size, checksum, format and attributes.
_HEAD_SIZE = 18
_INVALID = ErrorCode.INVALID_RECORD
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


def converting_up(
    message_set: memoryview | bytes,
    *,
    codec: Codec | None = None,
    level: int | None = None,
    max_bytes: int | None = None,
    max_message_bytes: int | None = None,
    rules: RecordRules | None = None,
) -> Steps[bytearray]:
    """Convert the message set of an old producer; an incomplete last message is left out.

    Without a ``codec`` the batch is compressed as the message set was. A message, or a batch, of
    more than ``max_message_bytes`` is refused.
    """
    source = yield from _checking_set(message_set, max_message_bytes)
    conversion = _Conversion(
        Compressor(source if codec is None else codec, None if codec is None else level),
        max_message_bytes,
        rules,
    )
    room = Room(COMPRESSOR_BYTES, is_for_output=True)
    try:
        if len(message_set) > _HEAD_SIZE * _MESSAGES_PER_STEP or source is not Codec.NONE:
            yield room
        magic: int | None = None
        for number, entry in enumerate(batches(message_set)):
            if not isinstance(entry, LegacyBatch) or magic not in (None, entry.magic):
                raise WrongFormat(f"format {entry.magic} is not allowed in this message set")
            magic = entry.magic
            if source is Codec.NONE:
                conversion.check(0, entry, entry)
                conversion.end()
                conversion.write(entry, entry)
            else:
                yield from _converting_inside(entry, conversion, max_bytes)
            if number % _MESSAGES_PER_STEP == _MESSAGES_PER_STEP - 1:
                yield None
        return conversion.build(source if codec is None else codec)
    finally:
        room.release()


def _checking_set(message_set: memoryview | bytes, max_message_bytes: int | None) -> Steps[Codec]:
    """Check the messages of a request from outside; return how the only one is compressed."""
    count, source = 0, Codec.NONE
    for entry in batches(message_set):
        if max_message_bytes is not None and entry.size > max_message_bytes:
            raise _too_large(entry.size, max_message_bytes)
        entry.ensure_valid()
        count, source = count + 1, entry.compression or source
        if count % _MESSAGES_PER_STEP == 0:
            yield None
    if not count:
        raise InvalidRecord("the request has no message for the partition")
    if source is not Codec.NONE and count > 1:
        raise InvalidRecord("a compressed message must be the only one in its request")
    return source


def _too_large(size: int, max_message_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{size} bytes are above max.message.bytes {max_message_bytes}",
    )


def _converting_inside(
    wrapper: LegacyBatch, conversion: _Conversion, max_bytes: int | None
) -> Steps[None]:
    """Convert the messages of a compressed set, one after the other."""
    codec, compressed = wrapper.compression, wrapper.compressed_messages()
    pieces = decompressing(codec, compressed, max_bytes, message_format_0=wrapper.magic == 0)
    reader = RecordReader(b"", 0, 0, pieces)
    index = 0
    try:
        while conversion.goes_on:
            message = yield from _next_message(reader)
            if message is None:
                break
            conversion.check(index, message, wrapper)
            if not conversion.errors:
                conversion.write(message, wrapper)
            index += 1
            if index % _MESSAGES_PER_STEP == 0:
                yield None
    finally:
        reader.close()
    if not index:
        raise InvalidRecord(f"the compressed set at offset {wrapper.last_offset} is empty")
    conversion.end()


def _next_message(reader: RecordReader) -> Steps[LegacyBatch | None]:
    """Return the next message of a set; None if there is no whole one, as in Kafka."""
    while reader.end - reader.position < _HEAD_SIZE:
        if not (yield from reader.next_piece()):
            return None
    (size,) = _INT32.unpack_from(reader.data, reader.position + 8)
    if size < MESSAGE_SIZE_MIN:
        raise CorruptBatch(f"a message of {size} bytes inside a compressed set")
    size += LOG_OVERHEAD
    if size <= reader.end - reader.position:
        position = reader.position
        reader.position += size
        return LegacyBatch(memoryview(reader.data)[position : position + size])
    if size > _INNER_BYTES_MAX:
        raise DecompressedTooLarge("message", _INNER_BYTES_MAX)
    parts: list[bytes] = []
    while size:
        if not (yield from reader.has_more()):
            return None
        parts += yield from reader.copy(min(size, reader.end - reader.position))
        size -= len(parts[-1])
    return LegacyBatch(memoryview(b"".join(parts)))


def _timestamp(message: LegacyBatch, wrapper: LegacyBatch) -> int:
    """Return a message's time: that of its wrapper, if that one's is when it was appended."""
    is_appended = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    return wrapper.max_timestamp if is_appended else message.max_timestamp


class _Conversion:
    """What has become of the messages so far."""

    def __init__(
        self, compressor: Compressor, max_message_bytes: int | None, rules: RecordRules | None
    ) -> None:
        self._rules = rules
        self._compressor = compressor
        self._max_message_bytes = max_message_bytes
        self._writer = RecordWriter()
        self._code = _INVALID
        self._of_wrong_format = 0
        #: For each refused message, its index and what is wrong with it.
        self.errors: list[tuple[int, str]] = []

    @property
    def goes_on(self) -> bool:
        """Tell whether the messages that follow can still make a difference."""
        return len(self.errors) < RECORD_ERRORS_MAX or self._code is not ErrorCode.INVALID_TIMESTAMP

    def check(self, index: int, message: LegacyBatch, wrapper: LegacyBatch) -> None:
        """Check one message, which may be its own wrapper."""
        found = self._error(index, message, wrapper)
        if found is None:
            return
        if found[0] is ErrorCode.INVALID_TIMESTAMP:
            self._code = ErrorCode.INVALID_TIMESTAMP
        if len(self.errors) < RECORD_ERRORS_MAX:
            self.errors.append((index, found[1]))

    def _error(
        self, index: int, message: LegacyBatch, wrapper: LegacyBatch
    ) -> tuple[ErrorCode, str] | None:
        if message is not wrapper:
            if message.compression is not Codec.NONE:
                return _INVALID, "a compressed message inside a compressed message"
            if message.magic != wrapper.magic:
                self._of_wrong_format += 1
                return _INVALID, f"format {message.magic} inside a message of {wrapper.magic}"
            message.ensure_valid()
        if self._rules is None:
            return None
        return self._rules.error(
            index,
            _timestamp(message, wrapper),
            message.last_offset,
            has_key=message.key_and_value()[0] is not None,
            claims_append_time=wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME,
        )

    def end(self) -> None:
        """Refuse the set if one of its messages is."""
        if self.errors:
            refused = RecordErrors(self._code, self.errors)
            refused.of_wrong_format = self._of_wrong_format
            raise refused

    def write(self, message: LegacyBatch, wrapper: LegacyBatch) -> None:
        """Write a message as a record."""
        key, value = message.key_and_value()
        rest = b"".join(
            (
                _NULL if key is None else encode_varint(len(key)),
                key or b"",
                _NULL if value is None else encode_varint(len(value)),
                value or b"",
                _NO_HEADERS,
            )
        )
        self._compressor.write(self._writer.head(_timestamp(message, wrapper), len(rest)))
        self._compressor.write(rest)
        limit = self._max_message_bytes
        if limit is not None and self._compressor.size > limit:
            raise _too_large(self._compressor.size, limit)

    def build(self, codec: Codec) -> bytearray:
        """Return the batch."""
        return BatchBuilder(codec=codec).build_around(
            self._compressor.finish(),
            record_count=self._writer.count,
            base_timestamp=self._writer.base_timestamp,
            max_timestamp=self._writer.max_timestamp,
        )
