"""What all fetchers of a broker share."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from dohle.core.host import Host
from dohle.core.ids import BrokerId
from dohle.replication.follower_fetches import FetchLimits
from dohle.replication.partition import UNKNOWN_BROKER_EPOCH
from dohle.replication.throttle import ReplicationQuota
from dohle.security.client import PLAINTEXT, ClientSecurity
from dohle.server.channel import ImageSource
from dohle.server.net.turns import Turns
from dohle.server.partitions.commits import Commits
from dohle.server.partitions.partitions import Partition
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.producers.entry import ProducerEntry

#: Given an epoch and an offset: where to go on, with which leader epochs and producers.
TierState = Callable[
    [Partition, int, int], Awaitable[tuple[int, list[EpochEntry], list[ProducerEntry]]]
]


class FetcherSettings(NamedTuple):
    """How records are copied: Kafka's replica.fetch.* and replica.socket.*."""

    limits: FetchLimits
    partition_max_bytes: int
    backoff_ms: int
    request_timeout_ms: int
    connection_setup_timeout_ms: int


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """The surroundings of a fetcher."""

    loop: AbstractEventLoop
    host: Host
    turns: Turns
    node_id: BrokerId
    #: The listener by which brokers reach each other.
    listener_name: str
    images: ImageSource
    commits: Commits
    settings: FetcherSettings
    #: How much may be fetched of replicas that are throttled.
    quota: ReplicationQuota
    #: Tells how a replica goes on behind an offset of an epoch that is remote.
    tier_state: TierState
    security: ClientSecurity = PLAINTEXT

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        registered = self.images.image.broker(self.node_id)
        return UNKNOWN_BROKER_EPOCH if registered is None else registered.epoch
