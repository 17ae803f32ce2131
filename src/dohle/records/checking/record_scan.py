"""Checking the records of a batch v2 without making them.

A leader looks at every record it takes, and in Python that is the dearest part of taking it. So
nothing is built here: :func:`scan_records` follows the lengths, refuses exactly what
:func:`dohle.records.record.decode_records` refuses, and returns a summary from which a leader sees
whether it has to look closer.

Producers often send records of one size, and then the same byte of every record lies a fixed stride
apart. A strided slice takes such a column out at once, so a run of equal records is checked column
by column, many times faster than one by one. It is exact: a run goes on only as long as every byte
that frames a record is the one it must be, and what is in doubt is scanned singly. Slices of views
are slow, so records are looked at in the memory that a view shows a part of.
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
    read_unsigned_varint,
    read_varint,
    read_varlong,
)

#: A run is tried after this many records of one size in a row.
_ALIKE_MIN = 4
#: Trying costs as much as scanning about this many records singly: no run is tried for fewer.
_RUN_MIN = 20
#: After a run this many records are scanned singly; each run that was shorter than that doubles it.
_PAUSE_MIN = 16
#: By how much records of one size may grow, each: an offset delta and a length of one byte more.
_GROWTH_MAX = 2
#: The most records in a run: bounds what the columns take.
_RUN_MAX = 4096
#: Varints grow by a byte at each of the first offset deltas; behind the last no run is tried.
_WIDTH_BOUNDS = (64, 8192, 65536)
#: The longest varint and varlong, in bytes.
_VARINT_SIZE_MAX, _VARLONG_SIZE_MAX = 5, 10
_ONE_BYTE = bytes(range(0x80))
_EVEN = bytes(range(0, 0x100, 2))
#: The most bytes of a timestamp delta in a run: as many as one number of 64 bits takes.
_DELTA_SIZE_MAX = 8


class Summary(NamedTuple):
    """What a leader needs to know of a batch's records."""

    min_timestamp: int
    max_timestamp: int
    #: Whether the offset deltas are 0, 1, 2 and so on.
    is_consecutive: bool
    #: Whether a record has no key.
    has_null_key: bool


#: A record that those behind it may be like: where it is, its size, and where there begin its
#: timestamp and offset deltas, where its key's length begins and ends, and its value's. It is made
#: too often for a class.
_Template = tuple[int, int, int, int, int, int, int, int]


def scan_records(records: bytes | memoryview, count: int, base_timestamp: int) -> Summary:
    """Go through ``count`` records, which must fill ``records``; InvalidRecord if they do not."""
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

    Instead of timestamps there are the smallest and the largest delta. This is written out like
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
                # They cannot end where they must if they reach behind the record.
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
            # At the start and behind a bound, if all that are left have about this size, they may
            # well be like this one.
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
        # Behind a bound the next are most likely alike again, if a byte longer.
        is_cut = found == _RUN_MAX or index in _WIDTH_BOUNDS
        try_at = index if is_cut else index + pause
    if position != end:
        raise InvalidRecord(f"{end - position} bytes follow the {count} records of a batch")
    return low, high, is_consecutive, has_null_key, size


def scan_frames(records: bytes | memoryview, count: int) -> int:
    """Follow the records' lengths only: there must be ``count``, and they must fill ``records``.

    Returns where the last one starts.
    """
    data, begin, end = _memory(records)
    position = start = begin
    index = previous_size = alike = try_at = 0
    pause = _PAUSE_MIN
    try_last = count - _RUN_MIN
    while index < count:
        start = position
        try:
            raw = data[position]
            position += 1
            if raw > 0x7F:
                raw = raw & 0x7F | data[position] << 7
                position += 1
                if raw > 0x3FFF:
                    raw, width = read_unsigned_varint(
                        bytes(data[start : start + _VARINT_SIZE_MAX]), 0
                    )
                    position = start + width
        except IndexError:
            raise InvalidRecord(f"only {index} of {count} records in {end - begin} bytes") from None
        position += raw >> 1
        if raw & 1 or position > end:
            raise InvalidRecord(
                f"a record at byte {start - begin} of {end - begin} cannot have its length"
            )
        index += 1
        if position - start != previous_size:
            previous_size = position - start
            alike = 1
            continue
        alike += 1
        if alike < _ALIKE_MIN or index < try_at or index > try_last:
            continue
        found = min(_RUN_MAX, count - index, (end - position) // previous_size)
        found = _same(data, range(start, position - (raw >> 1)), previous_size, found)
        pause = _PAUSE_MIN if found > pause else pause * 2
        index += found
        position += found * previous_size
        start = position - previous_size
        try_at = index if found == _RUN_MAX else index + pause
    if position != end:
        raise InvalidRecord(f"{end - position} bytes follow the {count} records of a batch")
    return start - begin


def _memory(records: bytes | memoryview) -> tuple[bytes | bytearray, int, int]:
    """Return what is quickest to look into, and where in it the records begin and end.

    That is the memory of a receive buffer, of which a view shows a part; else a copy. What lies
    behind the end may be looked at as well, but no record that reaches there is taken for one.
    """
    if not isinstance(records, memoryview):
        return records, 0, len(records)
    whole = records.obj
    if type(whole) is not bytearray or records.readonly or not records:
        return bytes(records), 0, len(records)
    begin = addressof(c_char.from_buffer(records)) - addressof(c_char.from_buffer(whole))
    return whole, begin, begin + len(records)


def _same(data: bytes | bytearray, places: Iterable[int], stride: int, found: int) -> int:
    """Tell how often the bytes at some places are the same again, a stride behind, and so on.

    ``found`` says how often to look.
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
    """Check how many records behind the template, the next with ``index``, are framed like it.

    Returns that number, and the smallest and the largest timestamp delta with theirs.
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
    # What is the same in each record: its length, its key's, its value's, and no headers.
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
        # All have the template's, which is known.
        return found, low, high
    deltas = _extreme_deltas(columns)
    if not deltas:
        return 0, low, high
    return found, min(low, *deltas), max(high, *deltas)


def _extreme_deltas(columns: list[bytes | bytearray]) -> list[int]:
    """Return some of a run's timestamp deltas, among them the smallest and the largest.

    The columns are the deltas' first bytes, their second and so on. None is returned if a delta
    does not end with the last column, or if they are too long.
    """
    *firsts, last = columns
    found, width = len(last), len(columns)
    if width > _DELTA_SIZE_MAX or not last.isascii():
        return []
    if any(len(column.translate(None, _ONE_BYTE)) != found for column in firsts):
        return []
    if all(column == column[:1] * found for column in columns):
        return [read_varlong(b"".join(column[:1] for column in columns), 0)[0]]
    # Read with the last byte as the highest, varints of one width come in the order of what they
    # hold. That is even and grows with the delta, or odd and falls with it if that is negative.
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
    """Return the first byte, the second and so on of the offset deltas below a width bound.

    What stands for deltas of a smaller width is not looked up and has no meaning.
    """
    columns = []
    width = len(encode_varint(bound - 1))
    for at in range(width):
        # A delta is doubled by the zig-zag: the first byte holds six bits of it, the others seven.
        step, times = (2, 1) if at == 0 else (1, 64 << 7 * (at - 1))
        more = 0x80 if at < width - 1 else 0
        values = range(0, 0x80, step)[: bound // times]
        period = b"".join(bytes((value | more,)) * times for value in values)
        columns.append(period * (bound // len(period)))
    return tuple(columns)


def _read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varint that is longer than nearly all."""
    value, width = read_varint(bytes(data[position : position + _VARINT_SIZE_MAX]), 0)
    return value, position + width


def _read_varlong(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varlong that is longer than nearly all."""
    value, width = read_varlong(bytes(data[position : position + _VARLONG_SIZE_MAX]), 0)
    return value, position + width
