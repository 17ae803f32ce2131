"""Deleting segments: by age, by size, and because the log start has moved past them.

Kafka's rules: segments are deleted from the oldest on, up to the first that may stay, and none that
reaches above the high watermark; if all are deleted, an empty one is created first. A segment's age
is the time since its largest record timestamp (since the file's mtime if its records have none).

Of a log in the remote tier, ``local.retention.*`` say what is kept here (T5): only segments go that
are known to be remote, and the log start stays where it is. An active segment that is too old or
too large is closed, so that it can be copied, and goes later.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from dohle.core.steps import PlainSteps, finish
from dohle.storage.log import Log
from dohle.storage.segment.segment import LogSegment

#: How many are deleted in one step: for each, some files are renamed.
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
    is_remote = _is_copied(log)
    prefix = "local." if is_remote else ""
    bytes_max = log.config.local_bytes_max if is_remote else log.config.retention_bytes
    ms_max = log.config.local_ms_max if is_remote else log.config.retention_ms
    if (log.config.delete or is_remote) and bytes_max >= 0:
        rules.append((lambda: _too_large(log, bytes_max), f"{prefix}retention.bytes"))
    if (log.config.delete or is_remote) and ms_max >= 0:
        rules.append((lambda: _too_old(log, now_ms, ms_max), f"{prefix}retention.ms"))
    gone = 0
    for number, (rule, reason) in enumerate(rules):
        while True:
            with log.disk.guarding(f"deleting old segments of {log.partition}"):
                some = _delete(log, rule(), reason, is_remote=is_remote and number > 0)
            gone += some
            if some < _SEGMENTS_AT_ONCE:
                break
            yield
    return gone


def _below_log_start(log: Log) -> Condition:
    return lambda _, following: (
        following is not None and (following.base_offset <= log.log_start_offset)
    )


def _is_copied(log: Log) -> bool:
    return log.config.remote_storage_enable and not log.config.remote_log_copy_disable


def _too_large(log: Log, bytes_max: int) -> Condition:
    excess = log.size - bytes_max

    def condition(segment: LogSegment, _: LogSegment | None) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return condition


def _too_old(log: Log, now_ms: int, ms_max: int) -> Condition:
    return lambda segment, _: now_ms - segment.largest_timestamp_ms() > ms_max


def _delete(log: Log, condition: Condition, reason: str, *, is_remote: bool) -> int:
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
        if is_remote and following is None:
            # Once it is closed it is copied, and then it may go.
            log.roll()
            break
        if is_remote and not (end - 1 <= log.highest_remote_offset or end <= log.log_start_offset):
            break
        deletable.append(segment)
        if len(deletable) == _SEGMENTS_AT_ONCE:
            break
    if not deletable:
        return 0
    if len(deletable) == len(segments):
        log.roll()
    following = log.segments.from_offset(deletable[-1].base_offset)[1]
    if not is_remote:
        log.increment_log_start_offset(following.base_offset)
    log.remove_segments(deletable, reason)
    return len(deletable)
