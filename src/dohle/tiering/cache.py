"""What is in the remote tier of one partition, as the metadata topic tells it (T9).

Each leader epoch has the segments that count, by where they begin in it; those that do not (not
copied yet, to be deleted, or covered by a larger copy of the same offsets) are kept aside, to be
cleaned up.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from dohle.core.ids import Uuid
from dohle.tiering.segments import RemoteSegment, SegmentState, SegmentUpdate, may_follow

logger = logging.getLogger("dohle.tiering")

_STARTED, _FINISHED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED
_DELETED = SegmentState.DELETE_SEGMENT_FINISHED


class _Epoch:
    """The segments that have records of one leader epoch.

    None of those that count is within another: so they end in the order in which they start, and
    the last one that starts before an offset is the one that reaches farthest behind it.
    """

    __slots__ = ("ends", "ids", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ids: dict[int, Uuid] = {}
        self.ends: dict[int, int] = {}
        #: In the order in which they came.
        self.unreferenced: dict[Uuid, None] = {}

    def put(self, start: int, end: int, segment_id: Uuid) -> None:
        """Let a segment count from ``start`` on, and none that it covers.

        It does not count itself if one covers it: the late copy of a leader of before must not
        hide what that of the next one has behind it.
        """
        slot = bisect_right(self.starts, start) - 1
        if slot >= 0 and (self.ends[self.starts[slot]], start) > (end, self.starts[slot]):
            self.unreferenced[segment_id] = None
            return
        slot = bisect_left(self.starts, start)
        while slot < len(self.starts) and self.ends[self.starts[slot]] <= end:
            self.unreferenced[self._remove(slot)] = None
        self.unreferenced.pop(segment_id, None)
        self.starts.insert(slot, start)
        self.ids[start], self.ends[start] = segment_id, end

    def _remove(self, slot: int) -> Uuid:
        start = self.starts.pop(slot)
        del self.ends[start]
        return self.ids.pop(start)

    def set_aside(self, segment_id: Uuid) -> None:
        """Let a segment not count."""
        for start, found in list(self.ids.items()):
            if found == segment_id:
                self._remove(self.starts.index(start))
        self.unreferenced[segment_id] = None

    def forget(self, segment_id: Uuid) -> None:
        """Forget a segment that is deleted."""
        self.set_aside(segment_id)
        del self.unreferenced[segment_id]

    def find(self, offset: int) -> tuple[Uuid, int] | None:
        """Return the segment that holds an offset, and its last offset in this epoch."""
        slot = bisect_right(self.starts, offset) - 1
        if slot < 0:
            return None
        start = self.starts[slot]
        return (self.ids[start], self.ends[start]) if offset <= self.ends[start] else None


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
        found = None if state is None else state.find(offset)
        return None if found is None else self._segments[found[0]]

    def last_offset(self, epoch: int, offset: int) -> int | None:
        """Return how far an epoch is in the segment that holds this offset of it."""
        state = self._epochs.get(epoch)
        found = None if state is None else state.find(offset)
        return None if found is None else found[1]

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
