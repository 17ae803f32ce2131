"""Checks the records of a format 2 batch without creating record objects.

A leader checks every record that it accepts, and in Python that is the most expensive part of
accepting it. So nothing is built here: :func:`begin_scan` follows the lengths, refuses exactly
what :func:`dohle.records.record.decode_records` refuses, and returns a summary that tells a leader
whether it has to look closer. Many records take many steps (``core.steps``): :func:`begin_scan`
takes the first, which is all that most batches need, and :func:`scanning` the others, also in
pieces as they are decompressed.

Producers often send records of one size, and then the same byte of every record lies a fixed stride
apart. A strided slice extracts such a column at once, so a run of equal records is checked column
by column, many times faster than one by one. It is exact: a run continues only as long as every
byte that frames a record has its only valid value, and anything doubtful is scanned singly. Small
records of mixed sizes are followed by regular expressions (``mixed_run``). Slices of views are
slow, so records are read in the memory that a view shows a part of.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import addressof, c_char
from typing import NamedTuple

from dohle.core.steps import Steps
from dohle.records.checking.columns import (
    OFFSETS_PERIOD,
    WIDTH_BOUNDS,
    extreme_deltas,
    offset_columns,
    offsets_of_width,
)
from dohle.records.checking.layouts import SAME_LAYOUT, find_layout, forget_layout, remember_layout
from dohle.records.checking.mixed_run import SIZE_MAX, scan_mixed_run
from dohle.records.checking.record_reader import RecordReader
from dohle.records.errors import InvalidRecord
from dohle.records.record import ONE_BYTE_VARINTS, decode_headers
from dohle.records.varint import (
    INT64_MAX,
    INT64_MIN,
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
#: So many records are followed singly in a step: what takes about half a millisecond.
_SINGLES_PER_STEP = 512
#: Headers of more bytes than this are read in steps of their own.
_HEADERS_BYTES_MAX = 1024
#: The longest varint and varlong, in bytes.
_VARINT_SIZE_MAX, _VARLONG_SIZE_MAX = 5, 10


# Without the named tuple's own constructor, which takes longer than a few records.
_new = tuple.__new__


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


def begin_scan(
    records: bytes | memoryview, count: int, base_timestamp: int, *, may_stop: bool = False
) -> Summary | Steps[Summary]:
    """Check ``count`` records, which must fill ``records`` exactly; else InvalidRecord.

    Takes the first step, and returns those that are left if there are any.
    If it ``may_stop``, they end after the first offset delta that does not count from zero.
    """
    total = len(records)
    shape = find_layout(count, total)
    if shape is not None:
        deltas = shape.timestamp_deltas(records)
        if deltas is not None:
            return _summary(deltas[0], deltas[1], True, shape.has_null_key, base_timestamp)
        forget_layout(count, total)
    data, begin, end = memory_of(records)
    position, progress, _ = _follow_records(data, begin, end, count, _AT_FIRST)
    index, low, high, is_consecutive, has_null_key, last_size, _, _, _, _, _ = progress
    if index < count or position != end:
        reader = RecordReader(data, begin, end)
        reader.position = position
        return scanning(reader, count, base_timestamp, progress, may_stop=may_stop)
    if is_consecutive and count in SAME_LAYOUT and last_size * count == total:
        remember_layout(records, count)
    return _summary(low, high, is_consecutive, has_null_key, base_timestamp)


def _summary(
    low: int, high: int, is_consecutive: bool, has_null_key: bool, base_timestamp: int
) -> Summary:
    low += base_timestamp
    high += base_timestamp
    if low < INT64_MIN or high > INT64_MAX:
        raise InvalidRecord(f"{low} to {high} are not timestamps")
    return _new(Summary, (low, high, is_consecutive, has_null_key))


#: How far a scan has come: the number of records that were followed; the smallest and the largest
#: timestamp delta; whether the offset deltas count from zero, and whether a key is null; the size
#: of the last record, how many before it had the same, and when runs are tried again: of one size,
#: and of mixed sizes.
_Progress = tuple[int, int, int, bool, bool, int, int, int, int, int, int]
_AT_FIRST: _Progress = (
    *(0, INT64_MAX, INT64_MIN, True, False, 0, 0),
    *(0, _PAUSE_MIN, WIDTH_BOUNDS[0], _PAUSE_MIN),
)


def scanning(
    reader: RecordReader,
    count: int,
    base_timestamp: int,
    progress: _Progress = _AT_FIRST,
    *,
    may_stop: bool = False,
) -> Steps[Summary]:
    """Check the records that ``reader`` has and gets, step by step."""
    while progress[0] < count:
        reader.position, progress, is_doubtful = _follow_records(
            reader.data, reader.position, reader.end, count, progress
        )
        if may_stop and not progress[3]:
            return Summary(0, 0, False, False)
        yield None
        if is_doubtful:
            head, key_size = yield from reader.record()
            index, low, high, is_consecutive, has_null_key, *_ = progress
            progress = (
                index + 1,
                min(low, head.timestamp_delta),
                max(high, head.timestamp_delta),
                is_consecutive and head.offset_delta == index,
                has_null_key or key_size < 0,
                *progress[5:],
            )
    if (yield from reader.has_more()):
        raise InvalidRecord(f"more bytes follow the {count} records of a batch")
    _, low, high, is_consecutive, has_null_key, *_ = progress
    return _summary(low, high, is_consecutive, has_null_key, base_timestamp)


def _follow_records(
    data: bytes | bytearray, position: int, end: int, count: int, progress: _Progress
) -> tuple[int, _Progress, bool]:
    """Follow the lengths of records, of so many as can be done in one step.

    Returns the position behind them, the progress, and whether the next record must be read with
    care: it may not be whole in ``data``, have many headers, or be wrong.

    This is written out like ``decode_records``, and for the same reason: calls cost too much. Here
    varints of two and three bytes are read in place as well: records of mixed sizes are full of
    them.
    """
    (
        index,
        low,
        high,
        is_consecutive,
        has_null_key,
        previous_size,
        alike,
        try_at,
        pause,
        mixed_at,
        mixed_pause,
    ) = progress
    stop = count if count - index < _SINGLES_PER_STEP else index + _SINGLES_PER_STEP
    try_last = count - _RUN_MIN
    one_byte = ONE_BYTE_VARINTS
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
            size = at - position
            start, position = position, at
            if size == previous_size and not headers:
                alike += 1
                if alike < _ALIKE_MIN:
                    continue
            else:
                previous_size = size
                left = count - index
                if (
                    mixed_at < index <= try_last
                    and alike < _ALIKE_MIN
                    and size <= SIZE_MAX
                    and is_consecutive
                    and not headers
                ):
                    alike = 1
                    width = key_at - offset_at
                    found, position, deltas = scan_mixed_run(
                        data,
                        position,
                        end,
                        index,
                        min(left, offsets_of_width(index, width)),
                        (offset_at - timestamp_at, width),
                        -1 if data[key_at] & 1 else value_at - key_end,
                    )
                    if found:
                        low, high = min(low, *deltas), max(high, *deltas)
                        index += found
                        stop = min(count, stop + found - found // 3)
                    mixed_pause = _PAUSE_MIN if found > 2 * mixed_pause else mixed_pause * 4
                    mixed_at = index if found > _PAUSE_MIN else index + mixed_pause
                    continue
                alike = 1
                # At the start and after a bound, if all remaining records have about this size,
                # they are probably like this one.
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
            if found > _RUN_MIN:
                alike = found
            index += found
            stop = min(count, stop + found - _RUN_MIN)
            position += found * size
            # After a bound the next ones are probably alike again, if a byte longer.
            is_cut = index in WIDTH_BOUNDS or not index % OFFSETS_PERIOD
            try_at = index if is_cut else index + pause
        else:
            progress = (
                index,
                low,
                high,
                is_consecutive,
                has_null_key,
                previous_size,
                alike,
                try_at,
                pause,
                mixed_at,
                mixed_pause,
            )
            return position, progress, False
    except (IndexError, InvalidRecord):
        pass
    progress = (
        index,
        low,
        high,
        is_consecutive,
        has_null_key,
        previous_size,
        alike,
        try_at,
        pause,
        mixed_at,
        mixed_pause,
    )
    return position, progress, True


def memory_of(records: bytes | memoryview) -> tuple[bytes | bytearray, int, int]:
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
    width = key_at - offset_at
    found = min(count - index, offsets_of_width(index, width), (end - first) // size)
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
    for expected in offset_columns(index, found, width):
        if data[at:stop:size] != expected:
            return 0, low, high
        at += 1
    columns = [data[at + size : stop : size] for at in range(timestamp_at, offset_at)]
    if len(columns) == 1 and columns[0] == data[timestamp_at:offset_at] * found:
        # All have the template's delta, which is known.
        return found, low, high
    deltas = extreme_deltas(columns)
    if not deltas:
        return 0, low, high
    return found, min(low, *deltas), max(high, *deltas)


def _read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varint that is longer than almost all."""
    value, width = read_varint(bytes(data[position : position + _VARINT_SIZE_MAX]), 0)
    return value, position + width


def _read_varlong(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a varlong that is longer than almost all."""
    value, width = read_varlong(bytes(data[position : position + _VARLONG_SIZE_MAX]), 0)
    return value, position + width
