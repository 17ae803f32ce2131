"""Positions in a partition: by offset, by timestamp, or relative to an end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first offset that still exists."""


@dataclass(frozen=True, slots=True)
class End:
    """The offset after the last record that the isolation level makes visible."""


@dataclass(frozen=True, slots=True)
class At:
    """An offset."""

    offset: int

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"{self.offset} is not an offset")


@dataclass(frozen=True, slots=True)
class Since:
    """The first record with this timestamp or a later one; the end if there is none."""

    timestamp_ms: int

    def __post_init__(self) -> None:
        if self.timestamp_ms < 0:
            raise ValueError(f"{self.timestamp_ms} is not a timestamp")


@dataclass(frozen=True, slots=True)
class Tail:
    """A number of offsets before the end, or the beginning if there are fewer."""

    offsets: int

    def __post_init__(self) -> None:
        if self.offsets < 0:
            raise ValueError(f"{self.offsets} offsets cannot be before the end")


@dataclass(frozen=True, slots=True)
class MaxTimestamp:
    """The record with the largest timestamp."""


@dataclass(frozen=True, slots=True)
class LocalBeginning:
    """The first offset on the disk of the leader: what is before it is in the remote tier only."""


Start = Beginning | End | At | Since | Tail
EndStart = Beginning | LocalBeginning | End | Since | MaxTimestamp
