"""Columns: the same byte of many records, as bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import compress

from dohle.records.varint import encode_varint, read_varlong

#: After so many offset deltas the first two bytes of their varints repeat: no run is longer.
OFFSETS_PERIOD = 8192
# Zig-zag doubles a delta: the first byte of its varint holds six bits of it, the others seven.
_ONLY_BYTES = bytes(range(0, 0x80, 2))
_FIRST_BYTES = bytes(range(0x80, 0x100, 2)) * (OFFSETS_PERIOD // 64)
_LAST_BYTES = b"".join(bytes((byte,)) * 64 for byte in range(0x80))
_SECOND_BYTES = b"".join(bytes((byte,)) * 64 for byte in range(0x80, 0x100))
#: Varints grow by a byte at each of these offset deltas.
_WIDTH_BOUNDS = (64, 1 << 13, 1 << 20, 1 << 27)
_ONE_BYTE = bytes(range(0x80))
_EVEN = bytes(range(0, 0x100, 2))
_ALL = bytes(range(0x100))
_IS_ODD, _IS_EVEN = bytes((0, 1)) * 0x80, bytes((1, 0)) * 0x80


def width_of(index: int) -> int:
    """Return how many bytes an offset delta takes."""
    return bisect_right(_WIDTH_BOUNDS, index) + 1


def offsets_of_width(index: int, width: int) -> int:
    """Count the offset deltas from ``index`` to the end of the period that have this width."""
    if bisect_right(_WIDTH_BOUNDS, index) + 1 != width:
        return 0
    return _WIDTH_BOUNDS[0] - index if width == 1 else OFFSETS_PERIOD - index % OFFSETS_PERIOD


def extreme_deltas(columns: Sequence[bytes | bytearray]) -> list[int]:
    """Return some of a run's timestamp deltas, including the smallest and the largest.

    The columns are the deltas' first bytes, their second bytes and so on. Returns none if a delta
    does not end with the last column.
    """
    *firsts, last = columns
    found = len(last)
    if not last.isascii():
        return []
    if any(len(column.translate(None, _ONE_BYTE)) != found for column in firsts):
        return []
    if not firsts and found and not last.translate(None, _EVEN):
        # What most producers send: no more than 63 ms in a batch, and none before the first.
        present = _present(last)
        return [present[0] >> 1, present[-1] >> 1]
    # Read with the last byte as the highest, varints of one width sort like the values they hold. A
    # value is even and grows with the delta, or odd and falls with it if the delta is negative.
    parts = [columns]
    if columns[0].translate(None, _EVEN):
        parts = [_selected(columns, columns[0].translate(signs)) for signs in (_IS_EVEN, _IS_ODD)]
    extremes = {_extreme(part, end) for part in parts if part[0] for end in (0, -1)}
    return [read_varlong(extreme, 0)[0] for extreme in extremes]


def _extreme(columns: Sequence[bytes | bytearray], end: int) -> bytes:
    """Return the row that is the first or the last by its last byte, then the one before it..."""
    row = []
    for at in range(len(columns) - 1, -1, -1):
        column = columns[at]
        byte = _present(column)[end]
        row.append(byte)
        start, stop = column.find(byte), column.rfind(byte) + 1
        if column.count(byte) == stop - start:
            columns = [earlier[start:stop] for earlier in columns[:at]]
        else:
            is_byte = bytes(byte) + b"\x01" + bytes(0xFF - byte)
            columns = _selected(columns[:at], column.translate(is_byte))
    return bytes(reversed(row))


def _present(column: bytes | bytearray) -> bytes:
    """Return which bytes a column has, in order: all but those that are not in it."""
    return _ALL.translate(None, _ALL.translate(None, column))


def _selected(
    columns: Sequence[bytes | bytearray], selectors: bytes | bytearray
) -> list[bytes | bytearray]:
    """Keep the rows for which there is no 0."""
    return [bytes(compress(column, selectors)) for column in columns]


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
