"""Message sets of formats 0 and 1, as old producers write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dohle.records.compression.codecs import Codec, compress
from dohle.records.legacy import encode_message, message_flags
from dohle.records.record import NO_TIMESTAMP, TimestampType


class Message(NamedTuple):
    """A message to be written into a message set."""

    timestamp: int
    key: bytes | None
    value: bytes | None


def build_message_set(
    magic: int,
    messages: Iterable[Message],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    offsets: Sequence[int] | None = None,
) -> bytes:
    """Write messages one after the other, or compressed into a wrapper.

    Offsets count up from ``base_offset``, unless ``offsets`` gives one for each, in ascending order
    and none below it: a compacted log has gaps.
    """
    if magic not in (0, 1):
        raise ValueError(f"message sets have format 0 or 1, not {magic}")
    if codec is Codec.ZSTD:
        raise ValueError("zstd needs format 2")
    flags = message_flags(magic, timestamp_type)
    # Inside a wrapper of format 1, offsets are relative to the first.
    wrapped_from = base_offset if magic == 1 and codec is not Codec.NONE else 0
    offset = base_offset
    entries = []
    max_timestamp = NO_TIMESTAMP
    for index, message in enumerate(messages):
        timestamp = log_append_time if flags else message.timestamp
        offset = base_offset + index if offsets is None else offsets[index]
        entries.append(
            encode_message(
                offset - wrapped_from, magic, flags, timestamp, message.key, message.value
            )
        )
        max_timestamp = max(max_timestamp, timestamp)
    if codec is Codec.NONE or not entries:
        return b"".join(entries)
    value = compress(codec, b"".join(entries), message_format_0=magic == 0)
    return encode_message(offset, magic, flags | codec, max_timestamp, None, value)
