"""Where two logs agree: what a fetch at a position gets, and how far a follower goes back."""

from __future__ import annotations

from typing import NamedTuple

from dohle.raft.log_view import LogView
from dohle.raft.values import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch


class Mismatch(NamedTuple):
    """Why a position is not in the leader's log: one of both is set."""

    #: The log of the replica is another from there on.
    diverging: OffsetAndEpoch | None = None
    #: The replica is behind the log's start, or starts from nothing.
    snapshot: OffsetAndEpoch | None = None


def find_mismatch(log: LogView, offset: int, last_epoch: int) -> Mismatch | None:
    """Compare the end of a replica's log with the leader's; None if it is part of it (rule R49)."""
    oldest, newest = next(iter(log.snapshots), None), max(log.snapshots, default=None)
    if offset == 0 and newest is not None and newest != BOOTSTRAP_SNAPSHOT:
        return Mismatch(snapshot=newest)
    if offset == 0 and log.start_offset == 0:
        return None
    if oldest is not None and _is_before(offset, last_epoch, log.start_offset, oldest):
        return Mismatch(snapshot=newest)
    end = end_of_epoch(log, last_epoch)
    if end.epoch != last_epoch or end.offset < offset:
        return Mismatch(diverging=end)
    return None


def _is_before(offset: int, last_epoch: int, start_offset: int, oldest: OffsetAndEpoch) -> bool:
    if offset == start_offset:
        return last_epoch != oldest.epoch
    return offset < start_offset or last_epoch < oldest.epoch


def truncation_point(log: LogView, leader_end: OffsetAndEpoch) -> int:
    """Return how much of this log may be equal to one in which an epoch ends there (rule R54)."""
    if leader_end.epoch == 0:
        return min(leader_end.offset, log.end_offset)
    own = end_of_epoch(log, leader_end.epoch)
    return min(own.offset, leader_end.offset) if own.epoch == leader_end.epoch else own.offset


def end_of_epoch(log: LogView, epoch: int) -> OffsetAndEpoch:
    """Return the largest epoch not above the given one, and where it ends.

    Where that is the oldest snapshot its id is the answer, because the log itself does not know
    the epoch of the record before its start.
    """
    end = log.end_of_epoch(epoch)
    if end is None:
        return OffsetAndEpoch(log.end_offset, log.last_epoch)
    oldest = next(iter(log.snapshots), None)
    if oldest is not None and end == OffsetAndEpoch(oldest.offset, epoch):
        return oldest
    return end
