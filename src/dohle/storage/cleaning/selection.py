"""How much of a log may be cleaned now, and whether it is worth it. Pure, but for ``look_at``.

The words are Kafka's. What lies below the *first dirty offset* was seen by a finished round of
cleaning, and is clean. From the *first uncleanable offset* on nothing is touched: the active
segment, undecided transactions, and records that are younger than ``min.compaction.lag.ms``.
A log is eligible if the part between the two is a large part of what is below the second, or if
something in it is older than ``max.compaction.lag.ms``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dohle.storage.config import NEVER
from dohle.storage.log import Log

NO_TIMESTAMP = -1


class SegmentView(NamedTuple):
    """What the choice depends on of one segment."""

    base_offset: int
    size: int
    #: The largest timestamp of its records, or the time of its last change if they have none.
    #: Needed only with ``min.compaction.lag.ms``.
    largest_timestamp: int = NO_TIMESTAMP
    #: The largest timestamp of its first batch; not above 0 if there is none. Needed only with
    #: ``max.compaction.lag.ms``.
    first_batch_timestamp: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class LogView:
    """What the choice depends on of a log; the last of its segments is the active one."""

    segments: tuple[SegmentView, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What there is to clean in a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    #: Bytes of the segments that begin below the first dirty offset, ...
    clean_bytes: int
    #: ... and of those from the one that holds it up to the first uncleanable offset. A segment
    #: with both counts as both.
    cleanable_bytes: int
    #: Whether the checkpointed offset is not within the log, and the first dirty offset must be
    #: written in its place at once, chosen or not.
    checkpoint_is_wrong: bool
    #: How much longer than ``max.compaction.lag.ms`` the oldest dirty record has been there.
    overdue_ms: int
    is_eligible: bool

    @property
    def total_bytes(self) -> int:
        """The bytes that a round reads."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def ratio(self) -> float:
        """How much of what a round reads is dirty."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


def choose(log: LogView, checkpoint: int | None, now_ms: int) -> Cleanable:
    """Tell what there is to clean in a log that was cleaned up to an offset, if ever."""
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    is_wrong = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if is_wrong:
        first_dirty = log.log_start_offset
    *closed, active = log.segments
    dirty = _from_offset(closed, first_dirty) if first_dirty < active.base_offset else []
    uncleanable = min(log.last_stable_offset, active.base_offset)
    if log.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - log.min_compaction_lag_ms
        too_young = (s.base_offset for s in dirty if s.largest_timestamp > youngest_ms)
        uncleanable = min(uncleanable, next(too_young, uncleanable))
    uncleanable = max(first_dirty, uncleanable)
    # A segment that holds it is left out as a whole.
    behind = _from_offset(closed, uncleanable) if uncleanable < active.base_offset else []
    uncleanable = behind[0].base_offset if behind else active.base_offset
    clean_bytes = sum(s.size for s in closed if s.base_offset < first_dirty)
    cleanable_bytes = sum(s.size for s in dirty if s.base_offset < uncleanable)
    overdue_ms = _overdue_ms(log, dirty, now_ms)
    total = clean_bytes + cleanable_bytes
    is_dirty = total > 0 and cleanable_bytes / total > log.min_cleanable_dirty_ratio
    return Cleanable(
        first_dirty,
        uncleanable,
        clean_bytes,
        cleanable_bytes,
        is_wrong,
        overdue_ms,
        is_dirty or (overdue_ms > 0 and cleanable_bytes > 0),
    )


def _from_offset(segments: Sequence[SegmentView], offset: int) -> Sequence[SegmentView]:
    """Return the segment that holds an offset and all after it; all, if it is before them."""
    below = sum(segment.base_offset <= offset for segment in segments)
    return segments[max(0, below - 1) :]


def _overdue_ms(log: LogView, dirty: Sequence[SegmentView], now_ms: int) -> int:
    times = [s.first_batch_timestamp for s in dirty if s.first_batch_timestamp > 0]
    if not times:
        return 0
    return max(0, now_ms - max(log.max_compaction_lag_ms, 0) - min(times))


def look_at(log: Log, checkpoint: int | None, now_ms: int) -> Cleanable:
    """Do the same for a real log, on the thread that uses it.

    Times are asked of its segments only where a setting depends on them: that may take a small
    read for each, the first time.
    """
    config = log.config
    *closed, active = log.segments
    has_min_lag = config.min_compaction_lag_ms > 0
    has_max_lag = config.max_compaction_lag_ms < now_ms
    views = [
        SegmentView(
            segment.base_offset,
            segment.size,
            segment.largest_timestamp_ms() if has_min_lag else NO_TIMESTAMP,
            segment.first_batch_timestamp if has_max_lag else NO_TIMESTAMP,
        )
        for segment in closed
    ]
    view = LogView(
        (*views, SegmentView(active.base_offset, active.size)),
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        config.min_cleanable_dirty_ratio,
    )
    return choose(view, checkpoint, now_ms)
