"""Deleting segments: by age, by size, and because the log start has moved past them.

Kafka's rules: segments are deleted from the oldest on, up to the first that may stay, and none that
reaches above the high watermark; if all are deleted, an empty one is created first. A segment's age
is the time since its largest record timestamp (since the file's mtime if its records have none).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from dohle.core.steps import PlainSteps, finish
from dohle.storage.log import Log
from dohle.storage.segment.segment import LogSegment

#: So many are deleted in one step: for each, some files are renamed.
_SEGMENTS_AT_ONCE = 8

#: Given a segment and the one after it, tells whether it is to be deleted.
Condition = Callable[[LogSegment, LogSegment | None], bool]


def delete_old_segments(log: Log, now_ms: int) -> int:
    """Delete segments by the topic's ``cleanup.policy``; return how many were deleted."""
    return finish(delete_old_segments_in_steps(log, now_ms))


def delete_old_segments_in_steps(log: Log, now_ms: int) -> PlainSteps[int]:
    """Do the same, a few segments in each step."""
    rules: list[tuple[Callable[[], Condition], str]] = [
        (lambda: _below_log_start(log), "below the log start offset")
    ]
    if log.config.delete and log.config.retention_bytes >= 0:
        rules.append((lambda: _too_large(log), "retention.bytes"))
    if log.config.delete and log.config.retention_ms >= 0:
        rules.append((lambda: _too_old(log, now_ms), "retention.ms"))
    gone = 0
    for rule, reason in rules:
        while True:
            with log.disk.guarding(f"deleting old segments of {log.partition}"):
                some = _delete(log, rule(), reason)
            gone += some
            if some < _SEGMENTS_AT_ONCE:
                break
            yield
    return gone


def _below_log_start(log: Log) -> Condition:
    return lambda _, following: (
        following is not None and (following.base_offset <= log.log_start_offset)
    )


def _too_large(log: Log) -> Condition:
    excess = log.size - log.config.retention_bytes

    def condition(segment: LogSegment, _: LogSegment | None) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return condition


def _too_old(log: Log, now_ms: int) -> Condition:
    return lambda segment, _: now_ms - segment.largest_timestamp_ms() > log.config.retention_ms


def _delete(log: Log, condition: Condition, reason: str) -> int:
    # There may be thousands; one more than may be deleted now tells whether all of them are.
    segments = list(islice(log.segments, _SEGMENTS_AT_ONCE + 1))
    deletable: list[LogSegment] = []
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        end = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < end or (following is None and segment.size == 0):
            break
        if not condition(segment, following):
            break
        deletable.append(segment)
        if len(deletable) == _SEGMENTS_AT_ONCE:
            break
    if not deletable:
        return 0
    if len(deletable) == len(segments):
        log.roll()
    following = log.segments.from_offset(deletable[-1].base_offset)[1]
    log.increment_log_start_offset(following.base_offset)
    log.remove_segments(deletable, reason)
    return len(deletable)
