"""Columns: the same byte of many records, as bytes."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection

from dohle.records.varint import encode_varint, read_varlong

#: After so many offset deltas the first two bytes of their varints repeat: no run is longer.
OFFSETS_PERIOD = 8192
# Zig-zag doubles a delta: the first byte of its varint holds six bits of it, the others seven.
_ONLY_BYTES = bytes(range(0, 0x80, 2))
_FIRST_BYTES = bytes(range(0x80, 0x100, 2)) * (OFFSETS_PERIOD // 64)
_LAST_BYTES = b"".join(bytes((byte,)) * 64 for byte in range(0x80))
_SECOND_BYTES = b"".join(bytes((byte,)) * 64 for byte in range(0x80, 0x100))
#: Varints grow by a byte at each of these offset deltas.
WIDTH_BOUNDS = (64, 1 << 13, 1 << 20, 1 << 27)
_ONE_BYTE = bytes(range(0x80))
_EVEN = bytes(range(0, 0x100, 2))
#: The most bytes of a timestamp delta in a column: as many as a 64-bit number has.
_DELTA_SIZE_MAX = 8


def offsets_of_width(index: int, width: int) -> int:
    """Count the offset deltas from ``index`` to the end of the period that have this width."""
    if bisect_right(WIDTH_BOUNDS, index) + 1 != width:
        return 0
    return WIDTH_BOUNDS[0] - index if width == 1 else OFFSETS_PERIOD - index % OFFSETS_PERIOD


def extreme_deltas(columns: list[bytes | bytearray]) -> list[int]:
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


def offset_columns(index: int, count: int, width: int) -> list[bytes]:
    """Return the first bytes, the second bytes and so on of some offset deltas, of ``width`` bytes.

    Between multiples of ``OFFSETS_PERIOD``, only the first two bytes change.
    """
    phase = index % OFFSETS_PERIOD
    until = phase + count
    if width == 1:
        return [_ONLY_BYTES[phase:until]]
    columns = [_FIRST_BYTES[phase:until]]
    if width == 2:
        columns.append(_LAST_BYTES[phase:until])
    else:
        columns.append(_SECOND_BYTES[phase:until])
        columns += [bytes((byte,)) * count for byte in encode_varint(index)[2:]]
    return columns
