"""The marker that ends a transaction in a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId, TopicPartition


class Marker(NamedTuple):
    """A commit or abort marker, as it is written to each partition of a transaction."""

    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class SentMarker(NamedTuple):
    """A marker for a partition that another broker leads."""

    key: TopicPartition
    marker: Marker
    #: Tells whether it is still to be written.
    is_wanted: Callable[[], bool]
    #: Called once with the result; NETWORK_EXCEPTION if there is none.
    ended: Callable[[ErrorCode], None]
