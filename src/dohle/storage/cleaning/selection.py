"""How much of a log may be cleaned now, and whether it is worth it. Pure, but for ``look_at``.

The words are Kafka's. What lies below the *first dirty offset* was seen by a finished round of
cleaning, and is clean. From the *first uncleanable offset* on nothing is touched: the active
segment, undecided transactions, and records that are younger than ``min.compaction.lag.ms``.
A log is eligible if the part between the two is a large part of what is below the second, or if
something in it is older than ``max.compaction.lag.ms``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from dohle.core.steps import PlainSteps, finish
from dohle.storage.config import NEVER
from dohle.storage.log import Log

_SEGMENTS_PER_STEP = 100


@dataclass(frozen=True, slots=True)
class LogToClean:
    """What the choice depends on of a log; the last of its segments is the active one.

    There may be thousands of segments, so they are columns.
    """

    base_offsets: Sequence[int]
    #: Of the closed ones; so are the others.
    sizes: Sequence[int]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    #: The largest timestamp of each one's records, or the time of its last change if they have
    #: none. Needed only with ``min.compaction.lag.ms``.
    largest_timestamps: Sequence[int] = ()
    #: The largest timestamp of each one's first batch; not above 0 if there is none. Needed only
    #: with ``max.compaction.lag.ms``.
    first_batch_timestamps: Sequence[int] = ()
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


def choose(log: LogToClean, checkpoint: int | None, now_ms: int) -> Cleanable:
    """Tell what there is to clean in a log that was cleaned up to an offset, if ever."""
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    is_wrong = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if is_wrong:
        first_dirty = log.log_start_offset
    closed, active = log.base_offsets[:-1], log.base_offsets[-1]
    dirty = _place(closed, first_dirty) if first_dirty < active else len(closed)
    uncleanable = min(log.last_stable_offset, active)
    if log.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - log.min_compaction_lag_ms
        for number in range(dirty, len(closed)):
            if log.largest_timestamps[number] > youngest_ms:
                uncleanable = min(uncleanable, closed[number])
                break
    uncleanable = max(first_dirty, uncleanable)
    if uncleanable < active:
        # A segment that holds it is left out as a whole.
        uncleanable = closed[_place(closed, uncleanable)] if closed else active
    else:
        uncleanable = active
    clean_bytes = sum(log.sizes[: bisect_left(closed, first_dirty)])
    cleanable_bytes = sum(log.sizes[dirty : bisect_left(closed, uncleanable)])
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


def _place(base_offsets: Sequence[int], offset: int) -> int:
    """Return which segment holds an offset; the first, if it is before them."""
    return max(0, bisect_right(base_offsets, offset) - 1)


def _overdue_ms(log: LogToClean, dirty: int, now_ms: int) -> int:
    oldest_ms = min((time for time in log.first_batch_timestamps[dirty:] if time > 0), default=0)
    return max(0, now_ms - max(log.max_compaction_lag_ms, 0) - oldest_ms) if oldest_ms else 0


def look_at(log: Log, checkpoint: int | None, now_ms: int) -> Cleanable:
    """Do the same for a real log, on the thread that uses it, in one go."""
    return finish(look_in_steps(log, checkpoint, now_ms))


def look_in_steps(log: Log, checkpoint: int | None, now_ms: int) -> PlainSteps[Cleanable]:
    """Do so in steps.

    Times are asked of its segments only where a setting depends on them: that may take a small
    read for each, the first time.
    """
    config, segments = log.config, tuple(log.segments)
    largest: list[int] = []
    first: list[int] = []
    has_min_lag = config.min_compaction_lag_ms > 0
    has_max_lag = config.max_compaction_lag_ms < now_ms
    if has_min_lag or has_max_lag:
        for number, segment in enumerate(segments[:-1], 1):
            if has_min_lag:
                largest.append(segment.largest_timestamp_ms())
            if has_max_lag:
                first.append(segment.first_batch_timestamp)
            if number % _SEGMENTS_PER_STEP == 0:
                yield
                if tuple(log.segments)[:number] != segments[:number]:
                    # Some are gone, or were cleaned.
                    return _nothing(log)
    view = LogToClean(
        [segment.base_offset for segment in segments],
        [segment.log_file.size for segment in segments[:-1]],
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        largest,
        first,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        config.min_cleanable_dirty_ratio,
    )
    return choose(view, checkpoint, now_ms)


def _nothing(log: Log) -> Cleanable:
    """Tell that nothing can be cleaned now."""
    start = log.log_start_offset
    return Cleanable(start, start, 0, 0, False, 0, False)
