"""Conversion between formats: up to 2 for old producers, down to 0 or 1 for old consumers.

Up: the whole message set of a Produce request before version 3 becomes one batch with offsets from
zero. Format 0 has no timestamps, so its records get -1. Only what is specific to messages is
checked here (checksums, formats, who set the time); everything else is up to
:func:`dohle.records.checking.validation.validating`, which the new batch has to pass like any
other.

Down: Fetch before version 4 knows only formats 0 and 1. Headers and control batches do not exist
there and are left out, records of aborted transactions cannot be recognised and stay, and zstd
cannot be expressed. Batches keep their codec, records their offsets. Whole batches are converted
until the limit is reached, and at least one, so that a consumer always makes progress.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import Batch, batches
from dohle.records.builder import BatchBuilder
from dohle.records.checking.validation import RecordErrors
from dohle.records.compression.codecs import DECOMPRESSED_BYTES_MAX, Codec
from dohle.records.errors import InvalidRecord
from dohle.records.legacy import LegacyBatch, Message, build_message_set
from dohle.records.record import TimestampType

_MAGIC_AT = 16


def to_v2(
    message_set: memoryview | bytes,
    *,
    codec: Codec | None = None,
    level: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """Convert the message set of an old producer; an incomplete last message is left out.

    Without a ``codec`` the batch is compressed as the message set was.
    """
    entries: list[LegacyBatch] = []
    for entry in batches(message_set):
        if not isinstance(entry, LegacyBatch) or (entries and entry.magic != entries[0].magic):
            raise InvalidRecord(f"format {entry.magic} is not allowed in this message set")
        entry.ensure_valid()
        entries.append(entry)
    if not entries:
        raise InvalidRecord("the request has no message for the partition")
    source = Codec.NONE
    for entry in entries:
        source = entry.compression or source
    if source is not Codec.NONE and len(entries) > 1:
        raise InvalidRecord("a compressed message must be the only one in its request")
    builder = BatchBuilder(
        codec=source if codec is None else codec, level=None if codec is None else level
    )
    for entry in entries:
        for message in _checked_messages(entry, max_bytes):
            (record,) = message
            builder.append(record.timestamp, record.key, record.value)
    return builder.build()


def _checked_messages(entry: LegacyBatch, max_bytes: int) -> list[LegacyBatch]:
    """Return the message, or the messages inside it, after a check of each."""
    messages = entry.messages(max_bytes)
    if entry.timestamp_type is TimestampType.LOG_APPEND_TIME:
        text = "a producer must not set LogAppendTime"
        errors = ((index, text) for index in range(len(messages)))
        raise RecordErrors(ErrorCode.INVALID_TIMESTAMP, errors)
    wrong = []
    for index, message in enumerate(messages):
        message.ensure_valid()
        if message.magic != entry.magic:
            wrong.append((index, f"format {message.magic} inside a message of {entry.magic}"))
        elif message is not entry and message.compression is not Codec.NONE:
            wrong.append((index, "a compressed message inside a compressed message"))
    if wrong:
        raise RecordErrors(ErrorCode.INVALID_RECORD, wrong)
    return messages


def down_convert(
    records: memoryview | bytes | bytearray,
    to_magic: int,
    *,
    first_offset: int,
    max_bytes: int | None = None,
) -> bytes:
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
            piece = _down_converted(batch, to_magic, first_offset)
        size += len(piece)
        if max_bytes is not None and size > max_bytes and converted:
            break
        if piece:
            converted.append(piece)
    return b"".join(converted)


def _down_converted(batch: Batch, to_magic: int, first_offset: int) -> bytes:
    codec = batch.compression
    offsets: list[int] = []
    messages: list[Message] = []
    for record in batch:
        # Inside a wrapper the other offsets follow from the last one's, so all records stay.
        if codec is not Codec.NONE or record.offset >= first_offset:
            offsets.append(record.offset)
            messages.append(Message(record.timestamp, record.key, record.value))
    if not messages:
        return b""
    return build_message_set(
        to_magic,
        messages,
        base_offset=offsets[0],
        codec=codec,
        timestamp_type=batch.timestamp_type,
        log_append_time=batch.max_timestamp,
        offsets=offsets,
    )
