"""Checks runs of records of mixed sizes whose lengths take two bytes each: 64 to 8,191 bytes.

What frames such a record stands at fixed places, but for the length of the value, which is behind
the key. So one ``struct`` reads all of it, with the byte before: the end of the previous record. As
a record must be as long as what it holds, the length of the value follows from that of the record.
With that it is exact, and takes less than half of the time of following records singly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dohle.records.checking.columns import offsets_of_width, width_of
from dohle.records.checking.one_by_one import Template

#: The least size of a record, including its length of two bytes.
SIZE_MIN = 2 + 64
#: The most bytes of a timestamp delta and of an offset delta, and how they are read.
_WIDTH_MAX = 2
_CODES = ("", "B", "H")
#: Varints of two bytes hold numbers from here on, and up to there.
_TWO_BYTES_MIN, _TWO_BYTES_END = 1 << 6, 1 << 13
#: Attributes, the lengths of key and value, and the number of headers.
_FIXED = 1 + 1 + 2 + 1
_NULL = 1
#: What no length of a key has: it is negative, or takes more than a byte.
_NO_SHORT_LENGTH = 0x81
#: Not a length of two bytes. It differs from everything that is expected.
_NO_LENGTH = -1

Unpack = Callable[[Any, int], tuple[Any, ...]]
#: How many records were followed, where the last one ends, and the one before it.
Followed = tuple[int, int, int]

_unpack_two: Unpack = struct.Struct(">H").unpack_from


def scan_sized_run(
    data: bytes | bytearray, position: int, end: int, last: Template, index: int, count: int
) -> tuple[int, int, list[int], bool]:
    """Count the records from ``position`` on that are like the ``last`` one but for their sizes.

    They have timestamp deltas of the same width, and no keys if that one has none. The first is to
    have the offset delta ``index``, and there are no more than ``count`` in all. Returns the
    number, the position behind them, their timestamp deltas, and whether a key is null.
    """
    _, _, timestamp_at, offset_at, key_at, _, _, _ = last
    timestamp_width, offset_width = offset_at - timestamp_at, width_of(index)
    if timestamp_width > _WIDTH_MAX or offset_width > _WIDTH_MAX:
        return 0, position, [], False
    number = min(count - index, offsets_of_width(index, offset_width))
    offsets = _offsets(offset_width)[index : index + number]
    fixed = 2 * (_FIXED + timestamp_width + offset_width)
    has_keys = data[key_at] != _NULL
    unpack, size = _head(timestamp_width, offset_width, has_keys)
    seen: set[int] = set()
    try:
        if has_keys:
            found, last_at, before = _follow_with_keys(
                data, position - 1, offsets, unpack, size, fixed, seen
            )
        else:
            found, last_at, before = _follow_without_keys(
                data, position - 1, offsets, unpack, fixed, seen
            )
        if data[last_at]:
            # The last one has headers, or is wrong.
            found, last_at = found - 1, before
    except (struct.error, IndexError):
        return 0, position, [], False
    deltas = _deltas(seen, timestamp_width)
    if found <= 0 or last_at >= end or not deltas:
        return 0, position, [], False
    return found, last_at + 1, deltas, not has_keys


def _follow_without_keys(
    data: bytes | bytearray,
    at: int,
    offsets: Sequence[int],
    unpack: Unpack,
    fixed: int,
    seen: set[int],
) -> Followed:
    """Follow records from behind the byte at ``at``, as far as they are as expected."""
    lengths, found, before = _lengths(), 0, at
    for offset in offsets:
        headers, length, timestamp, offset_delta, key, value = unpack(data, at)
        length = lengths[length]
        if headers or offset_delta != offset or key != _NULL or lengths[value] != length - fixed:
            break
        seen.add(timestamp)
        found += 1
        before = at
        at += (length >> 1) + 2
    return found, at, before


def _follow_with_keys(
    data: bytes | bytearray,
    at: int,
    offsets: Sequence[int],
    unpack: Unpack,
    size: int,
    fixed: int,
    seen: set[int],
) -> Followed:
    """Do the same with records that have keys; ``size`` bytes go before each."""
    lengths, found, before = _lengths(), 0, at
    for offset in offsets:
        headers, length, timestamp, offset_delta, key = unpack(data, at)
        if headers or offset_delta != offset or key & _NO_SHORT_LENGTH:
            break
        length = lengths[length]
        if lengths[_unpack_two(data, at + size + (key >> 1))[0]] != length - fixed - key:
            break
        seen.add(timestamp)
        found += 1
        before = at
        at += (length >> 1) + 2
    return found, at, before


@cache
def _head(timestamp_width: int, offset_width: int, has_keys: bool) -> tuple[Unpack, int]:
    """Return what reads the head of a record and the byte before it, and how many bytes that is."""
    codes = f">BHx{_CODES[timestamp_width]}{_CODES[offset_width]}B{'' if has_keys else 'H'}"
    head = struct.Struct(codes)
    return head.unpack_from, head.size


@cache
def _lengths() -> list[int]:
    """Return twice the length that two bytes hold, for all of them."""
    found = [_NO_LENGTH] * 0x1_0000
    for length in range(_TWO_BYTES_MIN, _TWO_BYTES_END):
        found[_in_two_bytes(length)] = 2 * length
    return found


@cache
def _offsets(width: int) -> list[int]:
    """Return the bytes of offset deltas from 0 on, as numbers, all but the first of this width."""
    one_byte = [2 * offset for offset in range(_TWO_BYTES_MIN)]
    if width == 1:
        return one_byte
    return one_byte + [_in_two_bytes(offset) for offset in range(_TWO_BYTES_MIN, _TWO_BYTES_END)]


def _in_two_bytes(value: int) -> int:
    """Return the bytes of a varint as a number: doubled, the lowest seven bits in the first."""
    return (2 * value & 0x7F | 0x80) << 8 | value >> 6


def _deltas(seen: set[int], width: int) -> list[int]:
    """Return the timestamp deltas of which the bytes were read; none if one has another width."""
    if width == 1:
        return [] if max(seen, default=0) > 0x7F else [raw >> 1 ^ -(raw & 1) for raw in seen]
    if any(raw & 0x8080 != 0x8000 for raw in seen):
        return []
    # The first byte has the lowest bits, and the highest of them tells that another follows.
    values = [(raw >> 8 & 0x7F) | (raw & 0x7F) << 7 for raw in seen]
    return [value >> 1 ^ -(value & 1) for value in values]
