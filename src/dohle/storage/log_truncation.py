"""Removing the end of a log, as a follower does whose records differ from the leader's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dohle.storage.producers.replay import rebuild_producer_state

if TYPE_CHECKING:
    from dohle.storage.log import Log

logger = logging.getLogger("dohle.storage")


def truncate_to(log: Log, offset: int, now_ms: int) -> bool:
    """Remove everything from ``offset`` on; tell whether there was anything."""
    if offset < 0:
        raise ValueError(f"cannot truncate {log.partition} to {offset}: that is not an offset")
    with log.disk.guarding(f"truncating {log.partition}"):
        if offset >= log.log_end_offset:
            # An epoch may have been noted although no record of it was appended.
            log.leader_epochs.truncate_from_end(log.log_end_offset)
            return False
        if offset < log.segments.first.base_offset:
            start = min(offset, log.log_start_offset)
            truncate_fully_and_start_at(log, offset, start, now_ms)
            return True
        logger.info("%s: truncating to offset %d", log.partition, offset)
        _end_cleaning(log)
        # The newest first, and durably before the file is cut: a crash in between leaves a log that
        # ends too late, but has no hole.
        above = [s for s in reversed(list(log.segments)) if s.base_offset > offset]
        if above:
            log.remove_segments(above, f"truncation to {offset}")
            log.fs.sync_dir(log.directory)
        log.segments.active.truncate_to(offset)
        log.leader_epochs.truncate_from_end(offset)
        _restart_at(log, offset, min(offset, log.log_start_offset), now_ms)
    return True


def truncate_fully_and_start_at(log: Log, offset: int, log_start_offset: int, now_ms: int) -> None:
    """Remove everything and go on at ``offset``, as a follower does that fell too far behind."""
    with log.disk.guarding(f"truncating {log.partition}"):
        logger.info("%s: truncating fully, starting at offset %d", log.partition, offset)
        _end_cleaning(log)
        log.remove_segments(list(log.segments)[::-1], f"new start at {offset}")
        log.segments.add(log.files.new_segment(offset, log.config))
        log.leader_epochs.clear()
        log.producer_state.truncate_fully_and_start_at(offset)
        _restart_at(log, offset, log_start_offset, now_ms)
        log.update_high_watermark(offset)


def _end_cleaning(log: Log) -> None:
    """Give up a round of cleaning: what it is about to put in place has records that will go."""
    if log.cleaning is not None:
        log.cleaning.abort()


def _restart_at(log: Log, end_offset: int, log_start_offset: int, now_ms: int) -> None:
    log.files.generation += 1
    # What is taken back was appended all the same.
    log.counted_from -= log.log_end_offset - end_offset
    log.log_end_offset = end_offset
    log.log_start_offset = log_start_offset
    # What comes here instead is not remote yet.
    log.highest_remote_offset = min(log.highest_remote_offset, end_offset - 1)
    rebuild_producer_state(log.producer_state, log.segments, log_start_offset, end_offset, now_ms)
    if log.high_watermark > end_offset:
        log.update_high_watermark(end_offset)
    # New records will reuse the offsets. Before that, the removed files must be gone durably, and
    # the checkpoint must no longer claim that the old records are on the disk.
    log.fs.sync_dir(log.directory)
    context = log.files.context
    if log.flushing.truncated_to(end_offset):
        context.checkpoint_recovery_points()
    active_base = log.segments.active.base_offset
    if log.cleaner_offset is not None and log.cleaner_offset > active_base:
        # What comes there now was not cleaned. If that were forgotten, a tombstone among it could
        # go while the older value that it deletes is still there.
        log.cleaner_offset = active_base
        context.checkpoint_cleaner_offsets()
