"""Checks runs of small records of mixed sizes, by regular expressions.

A record whose lengths take one byte each has few possible forms. An expression with one alternative
for each length of the value, and of the key if there is one, goes from record to record a few times
faster than Python does, and collects the head of each: all that frames its key and its value. These
are of one width, and so are checked column by column then: a record must be as long as what it
holds, and the offset deltas must count up. With that it is exact.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from dohle.records.checking.columns import (
    extreme_deltas,
    offset_columns,
    offsets_of_width,
    width_of,
)
from dohle.records.checking.one_by_one import Template

#: The most bytes of a record, including its length.
SIZE_MAX = 64
#: The most bytes of a timestamp delta and of an offset delta.
_TIMESTAMP_WIDTH_MAX, _OFFSET_WIDTH_MAX = 3, 4
#: How many bytes are followed at a time: what takes less than a millisecond.
_WINDOW_BYTES = 32 * 1024
#: An expression matches so many records at a time: each match costs as much as a record.
_AT_ONCE = 4

_NULL = 1
_NULL_AS_EMPTY = bytes.maketrans(bytes((_NULL,)), b"\x00")
_NO_LENGTH = 0xFF


class _Form(NamedTuple):
    """How records with deltas of some widths, and with keys or without, are found."""

    #: Finds the heads of ``_AT_ONCE`` records, each as bytes, or as those before the key and those
    #: behind it; else it matches all that is left, without any heads.
    expression: re.Pattern[bytes]
    head_size: int
    #: The length of a record, by the lengths of its key and value together.
    lengths: bytes


def scan_mixed_run(
    data: bytes | bytearray, position: int, end: int, last: Template, index: int, count: int
) -> tuple[int, int, list[int], bool]:
    """Count the records from ``position`` on that are like the ``last`` one but for their sizes.

    They have timestamp deltas of the same width, and no keys if that one has none. The first is to
    have the offset delta ``index``, and there are no more than ``count`` in all. Returns the
    number, the position behind them, some of their timestamp deltas, including the smallest and the
    largest, and whether a key is null.
    """
    _, _, timestamp_at, offset_at, key_at, _, _, _ = last
    timestamp_width, offset_width = offset_at - timestamp_at, width_of(index)
    if timestamp_width > _TIMESTAMP_WIDTH_MAX or offset_width > _OFFSET_WIDTH_MAX:
        return 0, position, [], False
    has_keys = data[key_at] != _NULL
    form = _form(timestamp_width, offset_width, has_keys)
    found: list[Any] = form.expression.findall(data, position, min(end, position + _WINDOW_BYTES))
    limit = min(count - index, offsets_of_width(index, offset_width))
    # What is left when no more such records follow has no heads.
    stride = form.head_size
    heads = b"".join(chain.from_iterable(found))[: limit * stride]
    number = len(heads) // stride
    lengths, keys, values = (heads[at::stride] for at in (0, stride - 2, stride - 1))
    if not number or lengths != _added(keys, values).translate(form.lengths):
        return 0, position, [], False
    at = 2 + timestamp_width
    for expected in offset_columns(index, number, offset_width):
        if heads[at::stride] != expected:
            return 0, position, [], False
        at += 1
    deltas = extreme_deltas([heads[at::stride] for at in range(2, 2 + timestamp_width)])
    # A length counts all but itself, and is doubled.
    return number, position + number + sum(lengths) // 2, deltas, _NULL in keys


def _added(keys: bytes, values: bytes) -> bytes:
    """Add up lengths of one byte each: none is so large that it would be carried over."""
    parts = (int.from_bytes(part.translate(_NULL_AS_EMPTY), "little") for part in (keys, values))
    return sum(parts).to_bytes(len(keys), "little")


@lru_cache(maxsize=2 * _TIMESTAMP_WIDTH_MAX * _OFFSET_WIDTH_MAX)
def _form(timestamp_width: int, offset_width: int, has_keys: bool) -> _Form:
    # Attributes, the lengths of key and value, and the number of headers.
    fixed = 1 + timestamp_width + offset_width + 2 + 1
    sizes = range(SIZE_MAX - fixed)
    key_at = 2 + timestamp_width + offset_width
    some = b"|".join((_byte(_NULL), *(_byte(2 * size) + _any(size) for size in sizes)))
    deltas = _varint(timestamp_width) + _varint(offset_width)
    key, value_size = (b"(?:" + some + b")", b"(?=(.))") if has_keys else (_byte(_NULL), b"")
    record = b"".join(
        (
            b"(?=(" + _any(key_at + (1 if has_keys else 2)) + b"))",
            b"..",
            deltas,
            key,
            value_size,
            b"(?:" + some + b")",
            rb"\x00",
        )
    )
    lengths = (both + 2 * fixed for both in range(0x100))
    return _Form(
        re.compile(b"(?s)" + record * _AT_ONCE + b"|.+"),
        key_at + 2,
        bytes(length if length < 2 * SIZE_MAX else _NO_LENGTH for length in lengths),
    )


def _byte(value: int) -> bytes:
    return rb"\x%02x" % value


def _any(count: int) -> bytes:
    """Match some bytes; few are matched faster one by one."""
    return b"." * count if count < 6 else b".{%d}+" % count


def _varint(width: int) -> bytes:
    return rb"[\x80-\xff]" * (width - 1) + rb"[\x00-\x7f]"
