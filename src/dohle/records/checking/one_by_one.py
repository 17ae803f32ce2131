"""Follows the lengths of records one by one, in Python.

This is written out like ``decode_records``, and for the same reason: calls cost too much. Here
varints of two and three bytes are read in place as well: records of mixed sizes are full of them.
"""

from __future__ import annotations

from dohle.records.errors import InvalidRecord
from dohle.records.record import ONE_BYTE_VARINTS, decode_headers
from dohle.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong

#: Headers of more bytes than this are read in steps of their own.
_HEADERS_BYTES_MAX = 1024
#: The longest varint and varlong, in bytes.
_VARINT_SIZE_MAX, _VARLONG_SIZE_MAX = 5, 10

#: A record that the ones after it may resemble: its position and size, and within it where the
#: timestamp and offset deltas begin, where its key's length begins and ends, and its value's. It is
#: created too often to be a class.
Template = tuple[int, int, int, int, int, int, int, int]
#: Of a record with headers, or of none.
NO_TEMPLATE: Template = (0, 0, 0, 0, 0, 0, 0, 0)

#: The position behind the records that were followed; the index of the next one; the smallest and
#: the largest timestamp delta; whether the offset deltas count up; whether a key is null; the last
#: record; how many of the last have its size; and whether the next record must be read with care:
#: it may not be whole in the data, have many headers, or be wrong.
Followed = tuple[int, int, int, int, bool, bool, Template, int, bool]


def follow_singly(
    data: bytes | bytearray,
    position: int,
    end: int,
    index: int,
    stop: int,
    low: int = INT64_MAX,
    high: int = INT64_MIN,
    is_consecutive: bool = True,
    has_null_key: bool = False,
    alike_max: int = 0,
) -> Followed:
    """Follow the records from ``index`` up to ``stop``, or until ``alike_max`` have one size.

    What is given of the records before is told of these as well, taken together.
    """
    one_byte = ONE_BYTE_VARINTS
    size = alike = headers = 0
    is_doubtful = True
    try:
        while index < stop:
            at = position
            if (length := one_byte[first := data[at]]) is not None:
                at += 1
            elif (second := data[at + 1]) < 0x80:
                length = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                at += 2
            else:
                length, at = _read_varint(data, at)
            record_end = at + length
            if length < 0 or record_end > end:
                break
            timestamp_at = at = at + 1  # after the attributes: none is in use
            if (delta := one_byte[first := data[at]]) is not None:
                at += 1
            elif (second := data[at + 1]) < 0x80:
                delta = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                at += 2
            else:
                delta, at = _read_varlong(data, at)
            if delta < low:
                low = delta
            if delta > high:
                high = delta
            offset_at = at
            if (delta := one_byte[first := data[at]]) is not None:
                at += 1
            elif (second := data[at + 1]) < 0x80:
                delta = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                at += 2
            elif (third := data[at + 2]) < 0x80:
                delta = (first >> 1 & 0x3F | (second & 0x7F) << 6 | third << 13) ^ -(first & 1)
                at += 3
            else:
                delta, at = _read_varint(data, at)
            if delta != index:
                is_consecutive = False
            key_at = at
            if (length := one_byte[first := data[at]]) is not None:
                at += 1
            elif (second := data[at + 1]) < 0x80:
                length = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                at += 2
            else:
                length, at = _read_varint(data, at)
            key_end = at
            if length > 0:
                at += length
            elif length < 0:
                has_null_key = True
            value_at = at
            if (length := one_byte[first := data[at]]) is not None:
                at += 1
            elif (second := data[at + 1]) < 0x80:
                length = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                at += 2
            else:
                length, at = _read_varint(data, at)
            value_end = at
            if length > 0:
                at += length
            if headers := data[at]:
                if record_end - at > _HEADERS_BYTES_MAX:
                    break
                rest = bytes(data[at:record_end])
                at += decode_headers(rest, 0, len(rest))[1]
            else:
                at += 1
            if at != record_end:
                break
            index += 1
            start, position = position, at
            if at - start != size:
                size, alike = at - start, 1
            else:
                alike += 1
                if alike == alike_max:
                    is_doubtful = False
                    break
        else:
            is_doubtful = False
    except (IndexError, InvalidRecord):
        pass
    last = NO_TEMPLATE
    if alike and not headers:
        last = (start, size, timestamp_at, offset_at, key_at, key_end, value_at, value_end)
    return position, index, low, high, is_consecutive, has_null_key, last, alike, is_doubtful


def _read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varint that is longer than almost all."""
    value, width = read_varint(bytes(data[position : position + _VARINT_SIZE_MAX]), 0)
    return value, position + width


def _read_varlong(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varlong that is longer than almost all."""
    value, width = read_varlong(bytes(data[position : position + _VARLONG_SIZE_MAX]), 0)
    return value, position + width
