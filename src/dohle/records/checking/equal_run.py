"""Checks runs of records of one size, column by column.

The same byte of every record lies a fixed stride apart, so a strided slice extracts such a column
at once. It is exact: a run continues only as long as every byte that frames a record has its only
valid value.
"""

from __future__ import annotations

from collections.abc import Iterable

from dohle.records.checking.columns import extreme_deltas, offset_columns, offsets_of_width
from dohle.records.checking.one_by_one import Template


def scan_equal_run(
    data: bytes | bytearray,
    end: int,
    template: Template,
    index: int,
    count: int,
    low: int,
    high: int,
) -> tuple[int, int, int]:
    """Count the records after the template, from ``index`` on, that are framed like it.

    Returns that number, and the given extremes of the timestamp delta extended by theirs. They must
    include the template's.
    """
    start, size, timestamp_at, offset_at, key_at, key_end, value_at, value_end = template
    first = start + size
    width = key_at - offset_at
    found = min(count - index, offsets_of_width(index, width), (end - first) // size)
    if found <= 0 or data[first] != data[start]:
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
