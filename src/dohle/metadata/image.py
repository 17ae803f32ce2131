"""The state of the cluster at one offset of the metadata log. Immutable.

A node answers from an image and acts on the difference between two of them. Images are built by
replaying records (:mod:`dohle.metadata.replay`) and share everything unchanged, so that an old
image in use keeps little memory alive.

Two images are equal if they hold the same metadata, whatever the offset they were read at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.metadata.metadata_version import ELR_VERSION, METADATA_VERSION
from dohle.metadata.partition import PartitionImage, is_directory_online
from dohle.metadata.persistent_map import PersistentMap
from dohle.protocol.messages.records.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from dohle.protocol.schema import MetadataRecord, VersionRange

#: The next producer id of a cluster that has allocated none.
NO_PRODUCER_IDS = -1

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class ResourceType(IntEnum):
    """What configs can belong to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """What a set of configs belongs to; the broker "" stands for all brokers."""

    type: int
    name: str


CLUSTER_DEFAULT = ConfigResource(ResourceType.BROKER, "")


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that has registered, alive or not."""

    id: BrokerId
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    log_dirs: tuple[Uuid, ...] = ()
    is_migrating_zk_broker: bool = False
    #: Of its record, which comes behind those of what follows from it; at most that of a snapshot.
    offset: int = field(default=-1, compare=False)

    @property
    def is_active(self) -> bool:
        """Tell whether it may lead partitions and be in their ISR."""
        return not (self.fenced or self.in_controlled_shutdown)

    def has_online_dir(self, directory: Uuid) -> bool:
        """Tell whether a replica in this directory is online."""
        return is_directory_online(directory, self.log_dirs)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions by index, in ascending order."""

    name: TopicName
    id: Uuid
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A metadata transaction (KIP-868) that has not ended: its records are not applied yet.

    They are kept by batch, the last batch first in the chain.
    """

    start_offset: int
    name: str | None
    batch: tuple[MetadataRecord, ...] = ()
    earlier: OpenTransaction | None = None

    def extended(self, batch: tuple[MetadataRecord, ...]) -> OpenTransaction:
        """Return the transaction with more records."""
        return OpenTransaction(self.start_offset, self.name, batch, self) if batch else self

    def records(self) -> list[MetadataRecord]:
        """Return all its records, in order."""
        batches = []
        link: OpenTransaction | None = self
        while link is not None:
            batches.append(link.batch)
            link = link.earlier
        return [record for batch in reversed(batches) for record in batch]


class QuotaKey(NamedTuple):
    """A quota: its entity, as (type, is it named, name), and what it limits."""

    entity: tuple[tuple[str, bool, str], ...]
    key: str


def quota_entity(entity: Iterable[EntityData]) -> tuple[tuple[str, bool, str], ...]:
    """Return the entity of a quota as the image knows it."""
    return tuple(
        sorted((e.entity_type, e.entity_name is not None, e.entity_name or "") for e in entity)
    )


class ScramKey(NamedTuple):
    """The user of a password, and the SCRAM mechanism."""

    mechanism: int
    user: str


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything in the log. What the controller does not use is kept as records."""

    brokers: PersistentMap[BrokerId, BrokerRegistration] = field(default_factory=PersistentMap)
    controllers: PersistentMap[int, RegisterControllerRecord] = field(default_factory=PersistentMap)
    topics: PersistentMap[TopicName, TopicImage] = field(default_factory=PersistentMap)
    topics_by_id: PersistentMap[Uuid, TopicImage] = field(default_factory=PersistentMap)
    #: The names with "." or "_", by collision key: see topic_names.
    colliding_names: PersistentMap[str, tuple[TopicName, ...]] = field(
        default_factory=PersistentMap
    )
    configs: PersistentMap[ConfigResource, Mapping[str, str]] = field(default_factory=PersistentMap)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = NO_PRODUCER_IDS
    acls: PersistentMap[Uuid, AccessControlEntryRecord] = field(default_factory=PersistentMap)
    scram_credentials: PersistentMap[ScramKey, UserScramCredentialRecord] = field(
        default_factory=PersistentMap
    )
    delegation_tokens: PersistentMap[str, DelegationTokenRecord] = field(
        default_factory=PersistentMap
    )
    client_quotas: PersistentMap[QuotaKey, ClientQuotaRecord] = field(default_factory=PersistentMap)
    #: The offset and epoch of the last record replayed.
    offset: int = field(default=-1, compare=False)
    epoch: int = field(default=-1, compare=False)
    transaction: OpenTransaction | None = field(default=None, compare=False)

    def topic(self, name: TopicName) -> TopicImage | None:
        """Return the topic of this name."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        """Return the topic of this id."""
        return self.topics_by_id.get(topic_id)

    def partition(self, name: TopicName, index: int) -> PartitionImage | None:
        """Return a partition of a topic."""
        topic = self.topic(name)
        return None if topic is None else topic.partitions.get(index)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """Return the registration of a broker."""
        return self.brokers.get(BrokerId(broker_id))

    def config(self, resource: ConfigResource) -> Mapping[str, str]:
        """Return the altered configs of a resource; defaults are not in the image."""
        return self.configs.get(resource, _NO_CONFIGS)

    def topic_config(self, name: TopicName) -> Mapping[str, str]:
        """Return the overrides of a topic."""
        return self.config(ConfigResource(ResourceType.TOPIC, name))

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """Return the overrides of a group."""
        return self.config(ConfigResource(ResourceType.GROUP, group_id))

    def client_metrics_config(self, name: str) -> Mapping[str, str]:
        """Return the overrides of a subscription to client metrics."""
        return self.config(ConfigResource(ResourceType.CLIENT_METRICS, name))

    def broker_config(self, broker_id: int) -> Mapping[str, str]:
        """Return the dynamic configs of one broker."""
        return self.config(ConfigResource(ResourceType.BROKER, str(broker_id)))

    def cluster_config(self) -> Mapping[str, str]:
        """Return the dynamic configs of all brokers."""
        return self.config(CLUSTER_DEFAULT)

    @property
    def metadata_version(self) -> int | None:
        """The finalized level of metadata.version; None before the cluster is bootstrapped."""
        return self.features.get(METADATA_VERSION)

    @property
    def is_elr_enabled(self) -> bool:
        """Tell whether eligible leader replicas (KIP-966) are kept."""
        return self.features.get(ELR_VERSION, 0) >= 1


EMPTY_IMAGE = ClusterImage()
