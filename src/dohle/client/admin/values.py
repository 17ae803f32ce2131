"""The arguments and results of an admin client, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from dohle.core.config.definition import ConfigType
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid

#: Lets the broker choose, by ``num.partitions`` or ``default.replication.factor``.
BROKER_DEFAULT = -1


class ResourceType(IntEnum):
    """What can have configs, by the number in requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, a broker or another thing with configs; the broker "" is the cluster's default."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """Where a config's value comes from, by its number in requests; the first that is set wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class AlterOp(IntEnum):
    """What is done to a config; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one config; to delete it no value is needed."""

    name: str
    op: AlterOp
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """The value of a config from one of its sources."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config and its value; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether it was never set."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; with assignments (brokers by partition) the counts are left out."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was, or could be, created; counts are -1 if the broker does not return them."""

    name: TopicName
    topic_id: Uuid
    partitions: int
    replication_factor: int
    configs: tuple[ConfigEntry, ...]


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
class EligibleLeaders:
    """Who may lead a partition besides its in-sync replicas (KIP-966)."""

    #: Those that have all acknowledged records, though they are not in sync.
    eligible: tuple[BrokerId, ...]
    #: Who led last, if nobody is left that is known to have them.
    last_known: tuple[BrokerId, ...]


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
    #: None if it was not asked for, or is not compacted, or the broker is none of dohle's.
    cleaning: ReplicaCleaning | None = None


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker; its bytes are -1 if the broker does not return them."""

    path: str
    error: KafkaError | None
    replicas: tuple[ReplicaDescription, ...]
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class Features:
    """The features that the cluster supports and those in use, as ranges of levels."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, tuple[int, int]]
    finalized_epoch: int
