"""Small batches with a known layout, recognised by the bytes that frame their records.

Producers of measurements and the like keep sending small batches with the same number of records,
all of the same size. Such batches have the same bytes in the same places, except for keys, values
and timestamps. So the second such batch is made into a layout: where those bytes are, and what they
are. A batch with the bytes of a layout is as valid as the one that the layout was taken from, and
comparing those bytes is a few times faster than following every length. A batch that differs is
scanned like any other. Batches with headers, or with timestamps more than 63 ms apart, get no
layout.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from dohle.records.varint import read_varint

#: The range of record counts for which layouts are kept. With fewer records there is little to
#: gain; with more, a scan, which checks records of one size column by column, is just as fast.
SAME_LAYOUT = range(3, 49)
#: How many layouts are kept: enough for a few hundred topics.
LAYOUTS_MAX = 512
_EVEN = bytes(range(0, 0x100, 2))

#: By record count and size; None if it was seen once. It is emptied when it is full.
_layouts: dict[tuple[int, int], Layout | None] = {}


class Layout(NamedTuple):
    """The bytes that frame the records of a batch, and where its timestamp deltas are."""

    frames: struct.Struct
    expected: tuple[bytes, ...]
    deltas: struct.Struct
    has_null_key: bool

    @classmethod
    def of(cls, records: bytes, count: int) -> Self | None:
        """Return the layout of records known to be valid; None if they are not that simple."""
        frames, deltas = [], []
        position = behind = 0
        has_null_key = False
        for _ in range(count):
            layout = _record_layout(records, position)
            if layout is None:
                return None
            key_size, value_size = max(layout.key_size, 0), layout.value_size
            has_null_key |= layout.key_size < 0
            # The last byte of a record, its number of headers, is compared together with what
            # follows. Attributes and delta, a byte each, are skipped.
            frames.append(f"{behind + layout.head_size}s2x")
            if key_size:
                frames.append(f"{layout.before_key_size}s{key_size}x{layout.before_value_size}s")
            else:
                frames.append(f"{layout.before_key_size + layout.before_value_size}s")
            frames.append(f"{value_size}x")
            delta_at = layout.head_size + 1
            deltas.append(f"{delta_at}xb{layout.end - position - delta_at - 1}x")
            position, behind = layout.end, 1
        framing = struct.Struct("".join((*frames, "s")))
        return cls(framing, framing.unpack(records), struct.Struct("".join(deltas)), has_null_key)

    def timestamp_deltas(self, records: bytes | memoryview) -> tuple[int, int] | None:
        """Return the smallest and largest delta of a batch; None if it has another layout."""
        if self.frames.unpack(records) != self.expected:
            return None
        deltas = self.deltas.unpack(records)
        low, high = min(deltas), max(deltas)
        # As signed bytes, those of longer varints are negative; an odd one is a negative delta.
        if low < 0 or (high and bytes(deltas).translate(None, _EVEN)):
            return None
        return low >> 1, high >> 1


class _RecordLayout(NamedTuple):
    """The positions of a record's parts."""

    head_size: int
    before_key_size: int
    key_size: int
    before_value_size: int
    value_size: int
    end: int


def _record_layout(records: bytes, start: int) -> _RecordLayout | None:
    _, attributes_at = read_varint(records, start)
    timestamp_at = attributes_at + 1
    if records[timestamp_at] & 0x80:
        return None
    _, key_size_at = read_varint(records, timestamp_at + 1)
    key_size, key_at = read_varint(records, key_size_at)
    value_size_at = key_at + max(key_size, 0)
    value_size, value_at = read_varint(records, value_size_at)
    end = value_at + max(value_size, 0)
    if records[end]:
        return None  # it has headers
    return _RecordLayout(
        attributes_at - start,
        key_at - timestamp_at - 1,
        key_size,
        value_at - value_size_at,
        max(value_size, 0),
        end + 1,
    )


def find_layout(count: int, size: int) -> Layout | None:
    """Return the layout that a batch of this record count and size may have."""
    return _layouts.get((count, size))


def forget_layout(count: int, size: int) -> None:
    """Drop a layout that a batch turned out not to have: it may have a different one now."""
    # Another thread may have done so.
    _layouts.pop((count, size), None)


def forget_all() -> None:
    """Drop all layouts."""
    _layouts.clear()


def number_of_layouts() -> int:
    """Return how many are kept, including candidates seen once."""
    return len(_layouts)


def remember_layout(records: bytes | memoryview, count: int) -> None:
    """Remember a valid batch, whose records probably have one size and deltas from zero on."""
    place = count, len(records)
    if place in _layouts:
        _layouts[place] = Layout.of(bytes(records), count)
        return
    if len(_layouts) >= LAYOUTS_MAX:
        forget_all()
    _layouts[place] = None
