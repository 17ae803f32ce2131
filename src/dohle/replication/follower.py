"""What a follower does with its leader's answer about one partition. It decides, others do it.

The rules are Kafka's:

- A fetch begins at the log end, and names the epoch of the last record there. A leader that does
  not agree says where its log and this one part: what is behind that goes, and the next fetch asks
  again, until both agree (KIP-101, KIP-279, KIP-595). Nothing is cut at the high watermark: the
  leader may have acknowledged what is above this replica's (the loss of KIP-101). Only a log
  without any epoch begins there, since nobody could say how far it agrees.
- An answer that tells where the logs part tells nothing else: neither its records nor its high
  watermark are taken (KAFKA-14704).
- A fetch of what the leader has in the remote tier only begins anew: behind a remote segment, with
  the epochs and producers that are kept beside it.
- A fetch that is out of range compares the ends of both logs, and then the start of the leader's.
- An epoch that is past, if it is the newest known here, stops fetching until there is a newer one.
  Anything else is tried again after a while.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dohle.core.errors import ErrorCode
from dohle.protocol.messages.fetch import EpochEndOffset as DivergingEpoch
from dohle.protocol.messages.fetch import FetchPartition, PartitionData
from dohle.protocol.schema import Records

UNKNOWN_EPOCH = -1


class EpochEnd(Protocol):
    """An epoch, and where it ends; both -1 where nothing is known."""

    @property
    def epoch(self) -> int:
        """The epoch."""

    @property
    def end_offset(self) -> int:
        """The offset behind its last record."""


class Epochs(Protocol):
    """The leader epochs of a log."""

    @property
    def latest_epoch(self) -> int | None:
        """The newest, if there is any."""

    def end_offset_for(self, requested_epoch: int, log_end_offset: int, /) -> EpochEnd:
        """Return where the newest epoch not above the requested one ends."""


class ReplicaLog(Protocol):
    """A log, as far as its offsets go."""

    @property
    def log_start_offset(self) -> int:
        """Where it begins."""

    @property
    def log_end_offset(self) -> int:
        """Where it ends."""

    @property
    def high_watermark(self) -> int:
        """How far it is known to be committed."""

    @property
    def leader_epochs(self) -> Epochs:
        """At which offset each leader's records begin."""


class Append(NamedTuple):
    """Write the records, if there are any, and take over where the leader's log stands."""

    records: Records
    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Remove what is at this offset and behind it, and ask again."""

    offset: int


class CompareRange(NamedTuple):
    """Ask the leader where its log begins and ends: see ``in_range``."""


class Delay(NamedTuple):
    """Try again after a while."""

    error: ErrorCode


class Fail(NamedTuple):
    """Do not ask again in this leader epoch."""

    error: ErrorCode


class BeginFromTier(NamedTuple):
    """Begin anew behind what is in the remote tier (KIP-405); the leader's log begins so."""

    log_start_offset: int


Reaction = Append | Truncate | CompareRange | BeginFromTier | Delay | Fail


class Restart(NamedTuple):
    """Remove everything and go on at this offset."""

    offset: int


def beginning(log: ReplicaLog) -> Truncate | None:
    """Tell what to remove before the first fetch of a leader epoch (F4, F15)."""
    if log.leader_epochs.latest_epoch is None and log.log_end_offset > log.high_watermark:
        return Truncate(log.high_watermark)
    return None


def next_fetch(
    log: ReplicaLog, partition: int, leader_epoch: int, max_bytes: int
) -> FetchPartition:
    """Return what to ask for: what comes behind the log end (F12)."""
    latest = log.leader_epochs.latest_epoch
    return FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=log.log_end_offset,
        last_fetched_epoch=UNKNOWN_EPOCH if latest is None else latest,
        log_start_offset=log.log_start_offset,
        partition_max_bytes=max_bytes,
    )


def react(data: PartitionData, log: ReplicaLog) -> Reaction:
    """Tell what to do with an answer to what is still asked for (F13-F16)."""
    error = _error(data.error_code)
    if error is ErrorCode.NONE:
        if data.diverging_epoch.epoch >= 0:
            return Truncate(truncation_offset(data.diverging_epoch, log))
        return Append(data.records or b"", data.high_watermark, data.log_start_offset)
    if error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return CompareRange()
    if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return BeginFromTier(data.log_start_offset)
    # It was asked with the newest epoch known here, which is past all the same.
    return Fail(error) if error is ErrorCode.FENCED_LEADER_EPOCH else Delay(error)


def truncation_offset(diverging: DivergingEpoch, log: ReplicaLog) -> int:
    """Return where to cut a log whose leader says where its newest common epoch ends."""
    end = log.log_end_offset
    own = log.leader_epochs.end_offset_for(diverging.epoch, end)
    if own.end_offset < 0:
        return min(diverging.end_offset, end)
    if own.epoch != diverging.epoch:
        # There is no such epoch here: the leader may not have the one that is, so ask again.
        return min(own.end_offset, end)
    return min(own.end_offset, diverging.end_offset, end)


def in_range(log: ReplicaLog, leader_start: int, leader_end: int) -> Truncate | Restart | None:
    """Tell what to do after a fetch out of range; None: go on at the log end."""
    end = log.log_end_offset
    if leader_end < end:
        return Truncate(leader_end)
    return Restart(leader_start) if leader_start > end else None


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
