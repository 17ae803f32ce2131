"""What a leader copies to the remote tier, and what it deletes there (T3, T7)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from dohle.core.ids import Uuid
from dohle.tiering.cache import RemoteLogMetadataCache
from dohle.tiering.lineage import is_within, without_empty
from dohle.tiering.segments import Epochs, RemoteSegment, SegmentState

#: A copy takes no longer: who began it is gone, or another leads now.
DANGLING_MS = 60 * 60 * 1000
_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
_DELETING = SegmentState.DELETE_SEGMENT_STARTED


class Extent(NamedTuple):
    """A log, as far as its offsets go."""

    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int
    #: Where its segments begin, oldest first; the last one is the active one.
    base_offsets: tuple[int, ...]


def to_copy(extent: Extent, copied: int) -> list[tuple[int, int]]:
    """Return the closed, decided segments behind the last copied offset, oldest first (T3.2-3).

    Each is told by its base offset and that of the next one. A segment that has the first missing
    offset in its middle is copied whole.
    """
    if extent.last_stable_offset <= 0 or copied >= extent.last_stable_offset:
        return []
    first = max(copied + 1, extent.log_start_offset)
    bases = extent.base_offsets
    return [
        (base, following)
        for base, following in pairwise(bases)
        if following > first and following <= extent.last_stable_offset
    ]


class Limits(NamedTuple):
    """How much is kept in all, and how long; None: no limit."""

    retention_ms: int | None
    retention_bytes: int | None


class Expiry(NamedTuple):
    """What to delete, and where the log begins before that is done."""

    segments: list[RemoteSegment]
    log_start_offset: int


def to_expire(
    cache: RemoteLogMetadataCache,
    extent: Extent,
    epochs: Sequence[tuple[int, int]],
    limits: Limits,
    local_only_bytes: int,
    now_ms: int,
    copying: Collection[Uuid] = (),
) -> Expiry:
    """Tell what a leader deletes now, in Kafka's order (T7).

    ``local_only_bytes`` are those of the local segments that are not remote, and ``copying`` the
    segments that this broker copies at the moment. Beside Kafka's rules, a copy that was begun long
    ago and that a finished one covers is deleted: nobody finishes it.
    """
    lineage = without_empty(epochs)
    plan = _Plan(cache, extent, lineage, limits, local_only_bytes, now_ms)
    for epoch, _ in lineage:
        if not all(plan.visit(each, copying) for each in cache.of_epoch(epoch)):
            break
    if lineage and lineage[0][1] <= extent.log_start_offset:
        # Else older epochs are not known any more: their file was lost.
        plan.visit_unreferenced(lineage[0][0])
    plan.visit_dangling(copying, now_ms - DANGLING_MS)
    return Expiry(list(plan.chosen.values()), plan.log_start_offset)


class _Plan:
    def __init__(
        self,
        cache: RemoteLogMetadataCache,
        extent: Extent,
        lineage: Epochs,
        limits: Limits,
        local_only_bytes: int,
        now_ms: int,
    ) -> None:
        self._cache = cache
        self._extent = extent
        self._lineage = lineage
        self.log_start_offset = extent.log_start_offset
        self.chosen: dict[Uuid, RemoteSegment] = {}
        self._seen: set[Uuid] = set()
        ms = limits.retention_ms
        self._oldest_ms = None if ms is None else now_ms - ms
        self._excess = 0
        if limits.retention_bytes is not None:
            self._excess = local_only_bytes + self._remote_bytes() - limits.retention_bytes

    def _is_ours(self, segment: RemoteSegment) -> bool:
        return is_within(segment, self._extent.log_end_offset, self._lineage)

    def _remote_bytes(self) -> int:
        return sum(
            each.size for each in self._cache if each.state is _FINISHED and self._is_ours(each)
        )

    def visit(self, segment: RemoteSegment, copying: Collection[Uuid]) -> bool:
        """Look at a segment; False if no later one is to be looked at."""
        if segment.id in copying:
            return False
        if segment.id in self._seen:
            return True
        self._seen.add(segment.id)
        if segment.state is _DELETING or self._is_below_start(segment):
            self.chosen[segment.id] = segment
            return True
        if not self._is_ours(segment):
            return True
        is_old = self._oldest_ms is not None and segment.max_timestamp_ms <= self._oldest_ms
        if not is_old and not (self._excess > 0 and self._excess - segment.size >= 0):
            return False
        self._excess -= segment.size
        self.chosen[segment.id] = segment
        self.log_start_offset = max(self.log_start_offset, segment.end_offset + 1)
        return True

    def _is_below_start(self, segment: RemoteSegment) -> bool:
        first = self._lineage[0][0]
        return segment.end_offset < self._extent.log_start_offset and all(
            epoch <= first for epoch, _ in segment.epochs
        )

    def visit_unreferenced(self, first_epoch: int) -> None:
        """Take the left-overs of epochs that the log has no more (T7.6)."""
        for segment in self._cache:
            if all(epoch < first_epoch for epoch, _ in segment.epochs):
                self.chosen[segment.id] = segment

    def visit_dangling(self, copying: Collection[Uuid], before_ms: int) -> None:
        """Take copies that were begun before a crash, and made again since (T15a)."""
        finished = [each for each in self._cache if each.state is _FINISHED]
        for segment in self._cache:
            if (
                segment.state is SegmentState.COPY_SEGMENT_STARTED
                and segment.id not in copying
                and segment.event_timestamp_ms <= before_ms
                and any(_covers(each, segment) for each in finished)
            ):
                self.chosen[segment.id] = segment


def _covers(larger: RemoteSegment, smaller: RemoteSegment) -> bool:
    return (
        larger.start_offset <= smaller.start_offset
        and larger.end_offset >= smaller.end_offset
        and larger.event_timestamp_ms >= smaller.event_timestamp_ms
    )
