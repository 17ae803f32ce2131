"""Checks the records of a format 2 batch without creating record objects.

A leader checks every record that it accepts, and in Python that is the most expensive part of
accepting it. So nothing is built here: :func:`scan_records` follows the lengths, refuses exactly
what :func:`dohle.records.record.decode_records` refuses, and returns a summary that tells a leader
whether it has to look closer.

Producers often send records of one size, and then the same byte of every record lies a fixed stride
apart. A strided slice extracts such a column at once, so a run of equal records is checked column
by column, many times faster than one by one. It is exact: a run continues only as long as every
byte that frames a record has its only valid value, and anything doubtful is scanned singly. Slices
of views are slow, so records are read in the memory that a view shows a part of.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable
from ctypes import addressof, c_char
from functools import cache
from typing import NamedTuple

from dohle.records.checking.layouts import SAME_LAYOUT, find_layout, forget_layout, remember_layout
from dohle.records.errors import InvalidRecord
from dohle.records.record import ONE_BYTE_VARINTS, decode_headers
from dohle.records.varint import (
    INT64_MAX,
    INT64_MIN,
    encode_varint,
    read_varint,
    read_varlong,
)

#: A run is tried after this many consecutive records of one size.
_ALIKE_MIN = 4
#: Trying costs as much as scanning about this many records singly: no run is tried for fewer.
_RUN_MIN = 20
#: After a run this many records are scanned singly; each run that was shorter than that doubles it.
_PAUSE_MIN = 16
#: How much records of one size may grow, each: an offset delta and a length of one byte more.
_GROWTH_MAX = 2
#: The most records in a run: bounds the memory of the columns.
_RUN_MAX = 4096
#: Varints grow by a byte at each of the first offset deltas; after the last no run is tried.
_WIDTH_BOUNDS = (64, 8192, 65536)
#: The longest varint and varlong, in bytes.
_VARINT_SIZE_MAX, _VARLONG_SIZE_MAX = 5, 10
_ONE_BYTE = bytes(range(0x80))
_EVEN = bytes(range(0, 0x100, 2))
#: The most bytes of a timestamp delta in a run: as many as a 64-bit number has.
_DELTA_SIZE_MAX = 8


class Summary(NamedTuple):
    """What a leader needs to know of a batch's records."""

    min_timestamp: int
    max_timestamp: int
    #: Whether the offset deltas are 0, 1, 2 and so on.
    is_consecutive: bool
    #: Whether a record has no key.
    has_null_key: bool


#: A record that the ones after it may resemble: its position and size, and within it where the
#: timestamp and offset deltas begin, where its key's length begins and ends, and its value's. It is
#: created too often to be a class.
_Template = tuple[int, int, int, int, int, int, int, int]


def scan_records(records: bytes | memoryview, count: int, base_timestamp: int) -> Summary:
    """Check ``count`` records, which must fill ``records`` exactly; else InvalidRecord."""
    total = len(records)
    shape = find_layout(count, total)
    deltas = None if shape is None else shape.timestamp_deltas(records)
    if shape is not None and deltas is not None:
        low, high = deltas
        is_consecutive, has_null_key = True, shape.has_null_key
    else:
        if shape is not None:
            forget_layout(count, total)
        low, high, is_consecutive, has_null_key, last_size = _follow_records(records, count)
        if last_size * count == total and is_consecutive and count in SAME_LAYOUT:
            remember_layout(records, count)
    low += base_timestamp
    high += base_timestamp
    if low < INT64_MIN or high > INT64_MAX:
        raise InvalidRecord(f"{low} to {high} are not timestamps")
    return Summary(low, high, is_consecutive, has_null_key)


def _follow_records(records: bytes | memoryview, count: int) -> tuple[int, int, bool, bool, int]:
    """Follow all lengths; return what a ``Summary`` needs, and the size of the last record.

    Instead of timestamps it returns the smallest and the largest delta. This is written out like
    ``decode_records``, and for the same reason: calls cost too much. Here varints of two bytes are
    read in place as well: records of mixed sizes are full of them.
    """
    data, begin, end = _memory(records)
    position = begin
    index = alike = try_at = previous_size = size = 0
    pause = _PAUSE_MIN
    try_last = count - _RUN_MIN
    low, high = INT64_MAX, INT64_MIN
    is_consecutive, has_null_key = True, False
    one_byte = ONE_BYTE_VARINTS
    while index < count:
        start = position
        try:
            if (length := one_byte[first := data[position]]) is not None:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                length = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                position += 2
            else:
                length, position = _read_varint(data, position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise InvalidRecord(
                    f"{length} bytes of record at byte {position - begin} of {end - begin}"
                )
            timestamp_at = position = position + 1  # after the attributes: none is in use
            if (delta := one_byte[first := data[position]]) is not None:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                delta = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                position += 2
            else:
                delta, position = _read_varlong(data, position)
            if delta < low:
                low = delta
            if delta > high:
                high = delta
            offset_at = position
            if (delta := one_byte[first := data[position]]) is not None:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                delta = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                position += 2
            else:
                delta, position = _read_varint(data, position)
            if delta != index:
                is_consecutive = False
            key_at = position
            if (length := one_byte[first := data[position]]) is not None:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                length = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                position += 2
            else:
                length, position = _read_varint(data, position)
            key_end = position
            if length > 0:
                position += length
            elif length < 0:
                has_null_key = True
            value_at = position
            if (length := one_byte[first := data[position]]) is not None:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                length = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
                position += 2
            else:
                length, position = _read_varint(data, position)
            value_end = position
            if length > 0:
                position += length
            if headers := data[position]:
                # If they reach past the record, they cannot end where they must.
                rest = bytes(data[position:record_end])
                position += decode_headers(rest, 0, len(rest))[1]
            else:
                position += 1
        except IndexError:
            raise InvalidRecord(
                f"a record runs past the end of {end - begin} bytes of records"
            ) from None
        if position != record_end:
            raise InvalidRecord(
                f"a record ends at byte {position - begin} and not at byte {record_end - begin}"
            )
        index += 1
        size = position - start
        if size == previous_size and not headers:
            alike += 1
            if alike < _ALIKE_MIN:
                continue
        else:
            previous_size = size
            alike = 1
            left = count - index
            # At the start and after a bound, if all remaining records have about this size, they
            # are probably like this one.
            if (
                index != try_at + 1
                or headers
                or not 0 <= end - position - left * size <= left * _GROWTH_MAX
            ):
                continue
        if index < try_at or index > try_last or not is_consecutive:
            continue
        template = (start, size, timestamp_at, offset_at, key_at, key_end, value_at, value_end)
        found, low, high = _scan_run(data, end, template, index, count, low, high)
        pause = _PAUSE_MIN if found > pause else pause * 2
        index += found
        position += found * size
        # After a bound the next ones are probably alike again, if a byte longer.
        is_cut = found == _RUN_MAX or index in _WIDTH_BOUNDS
        try_at = index if is_cut else index + pause
    if position != end:
        raise InvalidRecord(f"{end - position} bytes follow the {count} records of a batch")
    return low, high, is_consecutive, has_null_key, size


def _memory(records: bytes | memoryview) -> tuple[bytes | bytearray, int, int]:
    """Return the memory that is fastest to read, and where in it the records begin and end.

    That is the memory of a receive buffer, of which a view shows a part; else a copy. Bytes past
    the end may be read as well, but no record that reaches there is accepted.
    """
    if not isinstance(records, memoryview):
        return records, 0, len(records)
    whole = records.obj
    if type(whole) is not bytearray or records.readonly or not records:
        return bytes(records), 0, len(records)
    begin = addressof(c_char.from_buffer(records)) - addressof(c_char.from_buffer(whole))
    return whole, begin, begin + len(records)


def _same(data: bytes | bytearray, places: Iterable[int], stride: int, found: int) -> int:
    """Count how often the bytes at some positions repeat, each time one stride further on.

    ``found`` is the most that is counted.
    """
    for at in places:
        column = data[at + stride : at + stride * found + 1 : stride]
        one = data[at : at + 1]
        # Comparing is much faster than stripping, which goes byte by byte.
        if column != one * found:
            found -= len(column.lstrip(one))
    return found


def _scan_run(
    data: bytes | bytearray,
    end: int,
    template: _Template,
    index: int,
    count: int,
    low: int,
    high: int,
) -> tuple[int, int, int]:
    """Count the records after the template, from ``index`` on, that are framed like it.

    Returns that number, and the given extremes of the timestamp delta extended by theirs.
    """
    start, size, timestamp_at, offset_at, key_at, key_end, value_at, value_end = template
    first = start + size
    below = bisect_right(_WIDTH_BOUNDS, index)
    if below == len(_WIDTH_BOUNDS) or key_at - offset_at != below + 1:
        return 0, low, high
    bound = _WIDTH_BOUNDS[below]
    found = min(_RUN_MAX, count - index, bound - index, (end - first) // size)
    if found <= 0:
        return 0, low, high
    # The bytes common to all records: the lengths of record, key and value, and no headers.
    places = (
        *range(start, timestamp_at - 1),
        *range(key_at, key_end),
        *range(value_at, value_end),
        first - 1,
    )
    found = _same(data, places, size, found)
    if not found:
        return 0, low, high
    stop = first + size * found
    at = offset_at + size
    for expected in _offset_columns(bound):
        if data[at:stop:size] != expected[index : index + found]:
            return 0, low, high
        at += 1
    columns = [data[at + size : stop : size] for at in range(timestamp_at, offset_at)]
    if len(columns) == 1 and columns[0] == data[timestamp_at:offset_at] * found:
        # All have the template's delta, which is known.
        return found, low, high
    deltas = _extreme_deltas(columns)
    if not deltas:
        return 0, low, high
    return found, min(low, *deltas), max(high, *deltas)


def _extreme_deltas(columns: list[bytes | bytearray]) -> list[int]:
    """Return some of a run's timestamp deltas, including the smallest and the largest.

    The columns are the deltas' first bytes, their second bytes and so on. Returns None if a delta
    does not end with the last column, or if the deltas are too long.
    """
    *firsts, last = columns
    found, width = len(last), len(columns)
    if width > _DELTA_SIZE_MAX or not last.isascii():
        return []
    if any(len(column.translate(None, _ONE_BYTE)) != found for column in firsts):
        return []
    if all(column == column[:1] * found for column in columns):
        return [read_varlong(b"".join(column[:1] for column in columns), 0)[0]]
    # Read with the last byte as the highest, varints of one width sort like the values they hold. A
    # value is even and grows with the delta, or odd and falls with it if the delta is negative.
    numbers: Collection[int] = set(last)
    if firsts:
        rows = bytearray(_DELTA_SIZE_MAX * found)
        for at, column in enumerate(columns):
            rows[at::_DELTA_SIZE_MAX] = column
        numbers = struct.unpack(f"<{found}Q", rows)
    parts: list[Collection[int]] = [numbers]
    if columns[0].translate(None, _EVEN):
        parts = [[n for n in numbers if n & 1], [n for n in numbers if not n & 1]]
    extremes = [extreme(part) for part in parts if part for extreme in (min, max)]
    return [read_varlong(number.to_bytes(width, "little"), 0)[0] for number in extremes]


@cache
def _offset_columns(bound: int) -> tuple[bytes, ...]:
    """Return the first bytes, the second bytes and so on of the offset deltas below a width bound.

    The entries for deltas of a smaller width are never looked up and have no meaning.
    """
    columns = []
    width = len(encode_varint(bound - 1))
    for at in range(width):
        # Zig-zag doubles a delta: the first byte holds six bits of it, the others seven.
        step, times = (2, 1) if at == 0 else (1, 64 << 7 * (at - 1))
        more = 0x80 if at < width - 1 else 0
        values = range(0, 0x80, step)[: bound // times]
        period = b"".join(bytes((value | more,)) * times for value in values)
        columns.append(period * (bound // len(period)))
    return tuple(columns)


def _read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varint that is longer than almost all."""
    value, width = read_varint(bytes(data[position : position + _VARINT_SIZE_MAX]), 0)
    return value, position + width


def _read_varlong(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varlong that is longer than almost all."""
    value, width = read_varlong(bytes(data[position : position + _VARLONG_SIZE_MAX]), 0)
    return value, position + width
