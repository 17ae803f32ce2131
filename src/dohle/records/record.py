"""One record, and the decoding of the records of a format 2 batch.

Keys and values are ``bytes`` copies, not views into the batch: a view would keep the whole receive
buffer alive and unresizable for as long as one of its records is in use, cannot be a dict key, and
is slower to create. For the same reason records are decoded from ``bytes``: indexing and slicing
them costs about half of what it costs with a memoryview.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from dohle.records.errors import InvalidRecord
from dohle.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong

NO_TIMESTAMP = -1

Header = tuple[str, bytes | None]


class TimestampType(IntEnum):
    """Who set a record's timestamp."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record with its absolute offset. A named tuple, since consumers create millions of them."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


#: The value of a varint of one byte, by that byte; ``None`` where more bytes follow.
ONE_BYTE_VARINTS: tuple[int | None, ...] = (
    *((byte >> 1) ^ -(byte & 1) for byte in range(0x80)),
    *(None for _ in range(0x80)),
)


def decode_records(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None,
) -> Iterator[Record]:
    """Decode records one by one; ``data`` must hold exactly ``count`` of them.

    Slices past the end do not raise in Python, so lengths are not checked one by one: positions
    only grow, and a record must end exactly where its own length says. Varints of one byte are
    looked up in place, and tuples are created without the named tuple's own constructor, because
    this loop is the main cost of consuming.
    """
    position = 0
    end = len(data)
    one_byte, new = ONE_BYTE_VARINTS, tuple.__new__
    for _ in range(count):
        try:
            if (length := one_byte[data[position]]) is None:
                length, position = read_varint(data, position)
            else:
                position += 1
            record_end = position + length
            if length < 0 or record_end > end:
                raise InvalidRecord(f"{length} bytes of record at byte {position} of {end}")
            position += 1  # attributes: none is in use
            if (delta := one_byte[data[position]]) is None:
                delta, position = read_varlong(data, position)
            else:
                position += 1
            timestamp = base_timestamp + delta
            if (delta := one_byte[data[position]]) is None:
                delta, position = read_varint(data, position)
            else:
                position += 1
            if (length := one_byte[data[position]]) is None:
                length, position = read_varint(data, position)
            else:
                position += 1
            key = value = None
            if length >= 0:
                key = data[position : position + length]
                position += length
            if (length := one_byte[data[position]]) is None:
                length, position = read_varint(data, position)
            else:
                position += 1
            if length >= 0:
                value = data[position : position + length]
                position += length
            headers: tuple[Header, ...] = ()
            if data[position]:
                headers, position = decode_headers(data, position, record_end)
            else:
                position += 1
        except IndexError:
            raise InvalidRecord(f"a record runs past the end of {end} bytes of records") from None
        if position != record_end:
            raise InvalidRecord(f"a record ends at byte {position} and not at byte {record_end}")
        if log_append_time is not None:
            timestamp = log_append_time
        elif not INT64_MIN <= timestamp <= INT64_MAX:
            raise InvalidRecord(f"{timestamp} is not a timestamp")
        yield new(Record, (base_offset + delta, timestamp, key, value, headers))
    if position != end:
        raise InvalidRecord(f"{end - position} bytes follow the {count} records of a batch")


def decode_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    """Decode a record's headers, of which there is at least one; also return where they end."""
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise InvalidRecord(
            f"{count} headers cannot be in the {end - position} bytes left for them"
        )
    headers: list[Header] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if not 0 <= length <= end - position:
            raise InvalidRecord(f"a header key of {length} bytes at byte {position}")
        # Like Java's String: bytes that are not UTF-8 are replaced and not an error.
        name = data[position : position + length].decode("utf-8", "replace")
        position += length
        length, position = read_varint(data, position)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((name, value))
    return tuple(headers), position
