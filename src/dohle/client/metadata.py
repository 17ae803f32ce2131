"""What the client knows of the cluster: brokers, topics and the leaders of partitions.

Values only: :class:`ClusterMetadata` never changes, each response creates a new one. A partition's
leader is not replaced by that of an older leader epoch, which a lagging broker may still report,
unless the topic was recreated in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dohle.client.errors import answered_error
from dohle.client.net.addresses import Address
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_LEADER = BrokerId(-1)
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker and its address for clients."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition and its replicas, by broker id; the first replica is the preferred leader."""

    partition: int
    leader_id: BrokerId
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...] = ()
    offline_replicas: tuple[BrokerId, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its partitions by their number."""

    name: TopicName
    topic_id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One view of the cluster; it has the topics that were asked for."""

    cluster_id: str | None = None
    controller_id: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[TopicName, TopicInfo] = field(default_factory=dict)
    #: Why a requested topic is missing.
    errors: Mapping[TopicName, KafkaError] = field(default_factory=dict)

    def partition(self, of: TopicPartition) -> PartitionInfo | None:
        """Return what is known of a partition."""
        topic = self.topics.get(of.topic)
        return None if topic is None else topic.partitions.get(of.partition)

    def leader(self, of: TopicPartition) -> BrokerInfo | None:
        """Return the broker that leads a partition, if both are known."""
        partition = self.partition(of)
        return None if partition is None else self.brokers.get(partition.leader_id)

    def online_replica(self, of: TopicPartition, node_id: BrokerId) -> BrokerInfo | None:
        """Return a broker if it can be reached and has a replica of a partition that is online."""
        partition = self.partition(of)
        if partition is None or node_id not in partition.replicas:
            return None
        return None if node_id in partition.offline_replicas else self.brokers.get(node_id)

    def topic_id(self, name: TopicName) -> Uuid:
        """Return a topic's id; zeros if the brokers are too old to have any."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def updated(self, answer: MetadataResponse, *, complete: bool) -> ClusterMetadata:
        """Return the view after a response about all topics (``complete``) or about some."""
        topics = {} if complete else dict(self.topics)
        errors = {} if complete else dict(self.errors)
        for entry in answer.topics:
            if entry.name is None:
                continue
            if entry.error_code:
                topics.pop(entry.name, None)
                errors[entry.name] = answered_error(entry.error_code, f"topic {entry.name}")
            else:
                errors.pop(entry.name, None)
                topics[entry.name] = _topic(entry, self.topics.get(entry.name))
        brokers = {
            broker.node_id: BrokerInfo(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        }
        return ClusterMetadata(
            answer.cluster_id, answer.controller_id, brokers or self.brokers, topics, errors
        )

    def with_leader(
        self,
        of: TopicPartition,
        leader_id: BrokerId,
        leader_epoch: int,
        endpoints: Iterable[BrokerInfo] = (),
    ) -> ClusterMetadata:
        """Return the view after a broker named a partition's new leader (KIP-951)."""
        known = self.partition(of)
        brokers = {**self.brokers, **{broker.node_id: broker for broker in endpoints}}
        if known is None or leader_epoch <= known.leader_epoch or leader_id not in brokers:
            return self
        partition = replace(
            known, leader_id=leader_id, leader_epoch=leader_epoch, error=ErrorCode.NONE
        )
        topic = self.topics[of.topic]
        topic = replace(topic, partitions={**topic.partitions, of.partition: partition})
        return replace(self, brokers=brokers, topics={**self.topics, of.topic: topic})


def _topic(entry: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
    assert entry.name is not None
    if known is not None and known.topic_id != entry.topic_id:
        known = None
    partitions = {}
    for each in sorted(entry.partitions, key=lambda partition: partition.partition_index):
        partition = _partition(each)
        before = known and known.partitions.get(partition.partition)
        if before and NO_LEADER_EPOCH < partition.leader_epoch < before.leader_epoch:
            partition = before
        partitions[partition.partition] = partition
    return TopicInfo(entry.name, entry.topic_id, entry.is_internal, partitions)


def _partition(entry: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        entry.partition_index,
        entry.leader_id,
        entry.leader_epoch,
        entry.replica_nodes,
        entry.isr_nodes,
        entry.offline_replicas,
        answered_error(entry.error_code, "").code,
    )
