"""Small batches that are framed alike, told by the bytes that frame their records.

Producers of measurements and the like send small batches with the same number of records, all of
one size, again and again. In such batches all bytes are the same, and in the same places, but for
keys, values and timestamps. So the second one is taken for a shape: where those bytes are, and what
they are. A batch that has the bytes of a shape is as good as the one it was taken from, and to take
them out and compare them is a few times faster than to follow every length. One that differs is
scanned like any other; no shape is made of batches with headers, or of timestamps more than 63 ms
apart.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from dohle.records.varint import read_varint

#: For how many records shapes are kept. With fewer there is little to gain; with more a scan, which
#: looks at records of one size column by column, is as fast.
SAME_LAYOUT = range(3, 49)
#: How many are kept: those of a few hundred topics.
LAYOUTS_MAX = 512
_EVEN = bytes(range(0, 0x100, 2))

#: By number of records and size; None if it was seen once. When it is full it begins anew.
_layouts: dict[tuple[int, int], Layout | None] = {}


class Layout(NamedTuple):
    """The bytes that frame the records of a batch, and where its timestamp deltas are."""

    frames: struct.Struct
    expected: tuple[bytes, ...]
    deltas: struct.Struct
    has_null_key: bool

    @classmethod
    def of(cls, records: bytes, count: int) -> Self | None:
        """Find the shape of records that are known to be good; None if they are not that simple."""
        frames, deltas = [], []
        position = behind = 0
        has_null_key = False
        for _ in range(count):
            layout = _layout(records, position)
            if layout is None:
                return None
            key_size, value_size = max(layout.key_size, 0), layout.value_size
            has_null_key |= layout.key_size < 0
            # The last byte of a record, its number of headers, goes with what follows. Attributes
            # and the delta, a byte each, are passed over.
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
        """Return the smallest and the largest delta of a batch of this shape; None if it is not."""
        if self.frames.unpack(records) != self.expected:
            return None
        deltas = self.deltas.unpack(records)
        low, high = min(deltas), max(deltas)
        # One byte holds what is even if it is not negative; more than one if it is negative itself.
        if low < 0 or (high and bytes(deltas).translate(None, _EVEN)):
            return None
        return low >> 1, high >> 1


class _Layout(NamedTuple):
    """Where the parts of a record are."""

    head_size: int
    before_key_size: int
    key_size: int
    before_value_size: int
    value_size: int
    end: int


def _layout(records: bytes, start: int) -> _Layout | None:
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
    return _Layout(
        attributes_at - start,
        key_at - timestamp_at - 1,
        key_size,
        value_at - value_size_at,
        max(value_size, 0),
        end + 1,
    )


def find_layout(count: int, size: int) -> Layout | None:
    """Return the shape that a batch of so many records and bytes may have."""
    return _layouts.get((count, size))


def forget_layout(count: int, size: int) -> None:
    """Let go of a shape that a batch did not have: there may be another one now."""
    # Another thread may have done so.
    _layouts.pop((count, size), None)


def forget_all() -> None:
    """Let go of all shapes."""
    _layouts.clear()


def number_of_layouts() -> int:
    """Return how many are kept, with those that may become some."""
    return len(_layouts)


def remember_layout(records: bytes | memoryview, count: int) -> None:
    """Take note of a good batch, most likely of records of one size, with deltas from zero on."""
    place = count, len(records)
    if place in _layouts:
        _layouts[place] = Layout.of(bytes(records), count)
        return
    if len(_layouts) >= LAYOUTS_MAX:
        forget_all()
    _layouts[place] = None
