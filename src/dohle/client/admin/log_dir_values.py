"""Log directories and the replicas in them, as an admin client's results."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.errors import KafkaError
from dohle.core.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplicaCleaning:
    """How far the replica of a compacted topic is cleaned."""

    #: How much of what a round of cleaning would read is dirty, from 0 to 1.
    dirty_ratio: float
    #: When its last round ended, if it had one since its broker was started.
    last_cleaned_ms: int | None
    #: Why it cannot be cleaned, if it cannot.
    uncleanable: str | None


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A replica in a log directory; a future one is being moved there from another."""

    partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool
    #: None if it was not asked for, or is not compacted, or the broker is not dohle's.
    cleaning: ReplicaCleaning | None = None


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker; its bytes are -1 if the broker does not return them."""

    path: str
    error: KafkaError | None
    replicas: tuple[ReplicaDescription, ...]
    total_bytes: int
    usable_bytes: int
