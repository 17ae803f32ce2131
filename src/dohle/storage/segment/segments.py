"""The segments of a log in the order of their base offsets.

The list is copied on every change, so that a reader (a fetch, or a flush in another thread) keeps a
complete and unchanging view while segments come and go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from dohle.storage.segment.segment import LogSegment


class Segments:
    """An ordered, copy-on-write list of segments."""

    __slots__ = (
        "_base_offsets",
        "_segments",
        "active",
    )

    #: The newest segment, the one that is appended to. A log has one, except while it replaces all.
    active: LogSegment

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._set(segments)

    def _set(self, segments: Iterable[LogSegment]) -> None:
        ordered = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._set_ordered(ordered, tuple(segment.base_offset for segment in ordered))

    def _set_ordered(self, segments: tuple[LogSegment, ...], base_offsets: tuple[int, ...]) -> None:
        self._segments, self._base_offsets = segments, base_offsets
        if segments:
            self.active = segments[-1]
        elif hasattr(self, "active"):
            del self.active

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """The base offsets, ascending."""
        return self._base_offsets

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def size(self) -> int:
        """Bytes of all ``.log`` files."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        """Put a segment in its place."""
        base_offsets = self._base_offsets
        if not base_offsets or segment.base_offset > base_offsets[-1]:
            # A log may have thousands of them, and mostly gets one more at its end.
            self._splice(len(base_offsets), 0, (segment,))
        else:
            self._set((*self._segments, segment))

    def _splice(self, place: int, count: int, new: tuple[LogSegment, ...]) -> None:
        """Put segments in the place of some neighbours, where they keep the order."""
        bases = tuple(segment.base_offset for segment in new)
        end = place + count
        self._set_ordered(
            (*self._segments[:place], *new, *self._segments[end:]),
            (*self._base_offsets[:place], *bases, *self._base_offsets[end:]),
        )

    def remove(self, gone: Iterable[LogSegment]) -> None:
        """Remove segments."""
        names = {segment.base_offset for segment in gone}
        if names == set(self._base_offsets[: len(names)]):
            # The oldest, as retention does.
            self._set_ordered(self._segments[len(names) :], self._base_offsets[len(names) :])
        else:
            self._set(s for s in self._segments if s.base_offset not in names)

    def replace(self, gone: Iterable[LogSegment], new: Iterable[LogSegment]) -> None:
        """Put segments in the place of neighbours, in one step for readers.

        The new ones begin where the first of the others does, and end before what follows them.
        """
        gone, new = tuple(gone), tuple(new)
        place = bisect_left(self._base_offsets, gone[0].base_offset)
        assert self._segments[place : place + len(gone)] == gone
        self._splice(place, len(gone), new)

    def clear(self) -> None:
        """Remove all segments."""
        self._set(())

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segment that holds ``offset`` and all after it; all, if it is before them."""
        return self._segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment with the largest base offset that is not above ``offset``."""
        slot = bisect_right(self._base_offsets, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def lower(self, base_offset: int) -> LogSegment | None:
        """Return the segment before the one with this base offset."""
        return self.floor(base_offset - 1)
