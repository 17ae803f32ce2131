"""Checks runs of small records of mixed sizes, by regular expressions.

A record whose lengths take one byte each has few possible forms: given the size of its key and the
widths of its deltas, its first byte tells where everything else stands. An expression with one
alternative for each first byte follows such records a few times faster than Python does. It is
exact: it goes from one record to the next only if every byte that frames the record has its only
valid value. Deltas are looked at afterwards, column by column.
"""

from __future__ import annotations

import re
from functools import lru_cache

from dohle.records.checking.columns import extreme_deltas, offset_columns

#: The largest record that such a run may have, and the largest key.
SIZE_MAX = 64
_KEY_SIZE_MAX = 16
#: The most bytes of a timestamp delta and of an offset delta.
_TIMESTAMP_WIDTH_MAX, _OFFSET_WIDTH_MAX = 2, 4
#: So many bytes are followed at a time: what takes half a millisecond.
_WINDOW_BYTES = 16 * 1024


def scan_mixed_run(
    data: bytes | bytearray,
    position: int,
    end: int,
    index: int,
    limit: int,
    widths: tuple[int, int],
    key_size: int,
) -> tuple[int, int, list[int]]:
    """Count the records from ``position`` on, up to ``limit``, that have keys of this size.

    The first of them is to have the offset delta ``index``; all deltas have these ``widths``, first
    that of the timestamp. Returns the number, the position behind them, and some of their timestamp
    deltas, including the smallest and the largest.
    """
    timestamp_width, offset_width = widths
    if (
        key_size > _KEY_SIZE_MAX
        or timestamp_width > _TIMESTAMP_WIDTH_MAX
        or offset_width > _OFFSET_WIDTH_MAX
    ):
        return 0, position, []
    run, heads = _expressions(timestamp_width, offset_width, max(key_size, -1))
    matched = run.match(data, position, min(end, position + _WINDOW_BYTES))
    if matched is None:
        return 0, position, []
    found = heads.findall(data, position, matched.end())[:limit]
    count = len(found)
    if not count:
        return 0, position, []
    joined = b"".join(found)
    # A head has length, attributes, and both deltas.
    stride = 2 + timestamp_width + offset_width
    at = 2 + timestamp_width
    for expected in offset_columns(index, count, offset_width):
        if joined[at::stride] != expected:
            return 0, position, []
        at += 1
    deltas = extreme_deltas([joined[at::stride] for at in range(2, 2 + timestamp_width)])
    if not deltas:
        return 0, position, []
    # A length counts all but itself, and is doubled.
    return count, position + count + sum(joined[::stride]) // 2, deltas


@lru_cache(maxsize=2 * _TIMESTAMP_WIDTH_MAX * _OFFSET_WIDTH_MAX * (_KEY_SIZE_MAX + 2))
def _expressions(
    timestamp_width: int, offset_width: int, key_size: int
) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what matches records in a row, and what finds the head of each."""
    deltas = _varint(timestamp_width) + _varint(offset_width)
    key = rb"\x01" if key_size < 0 else _byte(2 * key_size) + _any(key_size)
    # Attributes, deltas, the lengths of key and value, the key, and the number of headers.
    fixed = 1 + timestamp_width + offset_width + 2 + max(key_size, 0) + 1
    records = b"|".join(
        _byte(2 * length)
        + b"."
        + deltas
        + key
        + _byte(2 * (length - fixed))
        + _any(length - fixed)
        + rb"\x00"
        for length in range(fixed, SIZE_MAX)
    )
    head = _any(2 + timestamp_width + offset_width)
    return (
        re.compile(b"(?s)(?:" + records + b")*"),
        re.compile(b"(?s)(?=(" + head + b"))(?:" + records + b")"),
    )


def _byte(value: int) -> bytes:
    return rb"\x%02x" % value


def _any(count: int) -> bytes:
    return b".{%d}" % count if count else b""


def _varint(width: int) -> bytes:
    return rb"[\x80-\xff]" * (width - 1) + rb"[\x00-\x7f]"
