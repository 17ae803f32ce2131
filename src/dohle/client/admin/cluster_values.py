"""The cluster, its quorum and its features, as an admin client's arguments and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from dohle.core.ids import BrokerId, TopicPartition, Uuid


class ElectionType(IntEnum):
    """Who may be elected, by the number in requests."""

    #: The first replica, if it is in sync.
    PREFERRED = 0
    #: Any replica, if none is in sync: records may be lost.
    UNCLEAN = 1


class PartitionReplica(NamedTuple):
    """The replica of a partition on a broker."""

    partition: TopicPartition
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment that is going on."""

    #: All that there are now: those that stay, those that are added, and those that go.
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class UpgradeType(IntEnum):
    """How the level of a feature may change, by the number in requests."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    #: Metadata that the lower level does not know is lost.
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class VoterKey:
    """A controller: its id, and the id of the directory that has its metadata log."""

    node_id: BrokerId
    directory_id: Uuid


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node that has the metadata log, as the leader of the quorum knows it."""

    node_id: BrokerId
    directory_id: Uuid
    log_end_offset: int
    #: When it last fetched, and when it last had all there was; -1 if that is not known.
    last_fetch_ms: int
    last_caught_up_ms: int
    #: Where it listens for others, as ``name://host:port``.
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum of controllers."""

    leader_id: BrokerId
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of the cluster."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster, its controller and its brokers."""

    cluster_id: str | None
    controller_id: BrokerId
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """The features that the cluster supports and those in use, as ranges of levels."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, tuple[int, int]]
    finalized_epoch: int
