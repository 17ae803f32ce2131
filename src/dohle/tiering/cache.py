"""What is in the remote tier of one partition, as the metadata topic tells it (T9).

Each leader epoch has the segments that count, by where they begin in it; those that do not (not
copied yet, to be deleted, or replaced by a larger copy of the same offsets) are kept aside, to be
cleaned up. The highest offset of an epoch never falls, even if its segments are deleted: what was
remote once needs no copy.
"""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Iterator

from dohle.core.ids import Uuid
from dohle.tiering.segments import RemoteSegment, SegmentState, SegmentUpdate, may_follow

logger = logging.getLogger("dohle.tiering")

_STARTED, _FINISHED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED
_DELETED = SegmentState.DELETE_SEGMENT_FINISHED


class _Epoch:
    """The segments that have records of one leader epoch."""

    __slots__ = ("highest_offset", "ids", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ids: dict[int, Uuid] = {}
        #: In the order in which they came.
        self.unreferenced: dict[Uuid, None] = {}
        self.highest_offset = -1

    def put(self, start: int, end: int, segment_id: Uuid) -> None:
        """Let a segment count from ``start`` on, and none that it covers."""
        self.unreferenced.pop(segment_id, None)
        while self.starts and self.starts[-1] >= start and self.highest_offset <= end:
            self.unreferenced[self.ids.pop(self.starts.pop())] = None
        old = self.ids.get(start)
        if old is None:
            insort(self.starts, start)
        elif old != segment_id:
            self.unreferenced[old] = None
        self.ids[start] = segment_id
        self.highest_offset = max(self.highest_offset, end)

    def set_aside(self, segment_id: Uuid) -> None:
        """Let a segment not count."""
        for start, found in list(self.ids.items()):
            if found == segment_id:
                del self.ids[start]
                self.starts.remove(start)
        self.unreferenced[segment_id] = None

    def forget(self, segment_id: Uuid) -> None:
        """Forget a segment that is deleted."""
        self.set_aside(segment_id)
        del self.unreferenced[segment_id]

    def floor(self, offset: int) -> Uuid | None:
        """Return the segment that begins at an offset or the nearest one before it."""
        slot = bisect_right(self.starts, offset) - 1
        return self.ids[self.starts[slot]] if slot >= 0 else None


class RemoteLogMetadataCache:
    """The remote segments of one partition."""

    def __init__(self) -> None:
        self._segments: dict[Uuid, RemoteSegment] = {}
        self._epochs: dict[int, _Epoch] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[RemoteSegment]:
        return iter(list(self._segments.values()))

    def get(self, segment_id: Uuid) -> RemoteSegment | None:
        """Return a segment by its id."""
        return self._segments.get(segment_id)

    def apply(self, event: RemoteSegment | SegmentUpdate) -> bool:
        """Take in a record; False if it is not valid in this state, and was left out (T4)."""
        known = self._segments.get(event.segment_id.id)
        before = None if known is None else known.state
        if not may_follow(before, event.state):
            logger.debug("%s cannot come from %s to %s", event.segment_id, before, event.state)
            return False
        if isinstance(event, RemoteSegment):
            if known is None:
                self._begin(event)
        elif known is not None and known.state is not event.state:
            self._update(known.updated(event))
        return True

    def _begin(self, segment: RemoteSegment) -> None:
        self._segments[segment.id] = segment
        for epoch, _ in segment.epochs:
            self._epochs.setdefault(epoch, _Epoch()).unreferenced[segment.id] = None

    def _update(self, segment: RemoteSegment) -> None:
        self._segments[segment.id] = segment
        for number, (epoch, start) in enumerate(segment.epochs):
            state = self._epochs.setdefault(epoch, _Epoch())
            if segment.state is _FINISHED:
                state.put(start, _end_in_epoch(segment, number), segment.id)
            elif segment.state is _DELETED:
                state.forget(segment.id)
            else:
                state.set_aside(segment.id)
        if segment.state is _DELETED:
            del self._segments[segment.id]

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the segment that holds an offset of an epoch."""
        state = self._epochs.get(epoch)
        found = None if state is None else state.floor(offset)
        if found is None:
            return None
        segment = self._segments[found]
        for number, (each, _) in enumerate(segment.epochs):
            if each == epoch and offset <= _end_in_epoch(segment, number):
                return segment
        return None

    def highest_offset(self, epoch: int) -> int | None:
        """Return the last offset of an epoch that was ever remote."""
        state = self._epochs.get(epoch)
        return None if state is None or state.highest_offset < 0 else state.highest_offset

    def of_epoch(self, epoch: int) -> list[RemoteSegment]:
        """Return all segments that have records of an epoch, by where they start."""
        state = self._epochs.get(epoch)
        if state is None:
            return []
        ids = [*state.ids.values(), *state.unreferenced]
        found = [self._segments[each] for each in dict.fromkeys(ids)]
        return sorted(found, key=lambda segment: segment.start_offset)


def _end_in_epoch(segment: RemoteSegment, number: int) -> int:
    """Return the last offset of a segment that is of its epoch with this number."""
    following = segment.epochs[number + 1 :]
    return following[0][1] - 1 if following else segment.end_offset
