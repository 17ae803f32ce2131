"""The next image while its records are being replayed.

A draft holds the differences from the image it starts from, so that a batch of ten thousand records
costs ten thousand small steps and one change of each map, not ten thousand images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.uuid import uuid_to_text
from dohle.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    Endpoint,
    OpenTransaction,
    QuotaKey,
    ResourceType,
    ScramKey,
    TopicImage,
    quota_entity,
)
from dohle.metadata.metadata_version import KRAFT_VERSION, METADATA_VERSION
from dohle.metadata.partition import PartitionImage, partition_from_record
from dohle.metadata.persistent_map import Orderable, PersistentMap
from dohle.metadata.topic_names import collision_key
from dohle.protocol.messages.records import cluster_metadata as schema
from dohle.protocol.schema import MetadataRecord, VersionRange

K = TypeVar("K", bound=Orderable)
V = TypeVar("V")

#: What the tagged fields of a BrokerRegistrationChangeRecord say.
FENCE, UNFENCE = 1, -1
ENTER_CONTROLLED_SHUTDOWN = 1


class InvalidMetadataLog(ValueError):
    """The log contains a record that contradicts the ones before it."""


@dataclass(slots=True)
class _TopicDraft:
    name: TopicName
    id: Uuid
    partitions: dict[int, PartitionImage]


class Draft:
    """Takes records one by one; :meth:`finish` returns the image. In its maps None is removed."""

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        #: Of the record that is being replayed.
        self.offset = base.offset
        self.topics: dict[Uuid, _TopicDraft | None] = {}
        self.configs: dict[ConfigResource, dict[str, str] | None] = {}
        self.brokers: dict[BrokerId, BrokerRegistration | None] = {}
        self._topic_ids: dict[TopicName, Uuid | None] = {}
        self._controllers: dict[int, schema.RegisterControllerRecord | None] = {}
        self._features: dict[str, int] = dict(base.features)
        self._next_producer_id = base.next_producer_id
        self.acls: dict[Uuid, schema.AccessControlEntryRecord | None] = {}
        self._scram: dict[ScramKey, schema.UserScramCredentialRecord | None] = {}
        self._tokens: dict[str, schema.DelegationTokenRecord | None] = {}
        self._quotas: dict[QuotaKey, schema.ClientQuotaRecord | None] = {}

    def replay(self, record: MetadataRecord) -> None:
        """Take the next record."""
        handler = _HANDLERS.get(type(record))
        if handler is None:
            # Skipping it would lose it with the next snapshot.
            raise InvalidMetadataLog(f"{type(record).__name__} has no meaning in this log")
        try:
            handler(self, record)
        except InvalidMetadataLog:
            raise
        except ValueError as error:
            raise InvalidMetadataLog(f"{record!r}: {error}") from error

    def finish(self, offset: int, epoch: int, transaction: OpenTransaction | None) -> ClusterImage:
        """Return the image after all the records."""
        base = self.base
        topics = {
            topic_id: None if draft is None else _topic_image(draft)
            for topic_id, draft in self.topics.items()
        }
        by_id = _changed(base.topics_by_id, topics)
        by_name = {
            name: None if topic_id is None else by_id[topic_id]
            for name, topic_id in self._topic_ids.items()
        }
        by_name.update((topic.name, topic) for topic in topics.values() if topic is not None)
        return ClusterImage(
            brokers=_changed(base.brokers, self.brokers),
            controllers=_changed(base.controllers, self._controllers),
            topics=_changed(base.topics, by_name),
            topics_by_id=by_id,
            colliding_names=self._colliding_names(),
            configs=_changed(base.configs, self.configs),
            features=base.features if self._features == base.features else self._features,
            next_producer_id=self._next_producer_id,
            acls=_changed(base.acls, self.acls),
            scram_credentials=_changed(base.scram_credentials, self._scram),
            delegation_tokens=_changed(base.delegation_tokens, self._tokens),
            client_quotas=_changed(base.client_quotas, self._quotas),
            offset=offset,
            epoch=epoch,
            transaction=transaction,
        )

    def _colliding_names(self) -> PersistentMap[str, tuple[TopicName, ...]]:
        base = self.base.colliding_names
        if not self._topic_ids:
            return base
        groups: dict[str, set[TopicName]] = {}
        for name, topic_id in self._topic_ids.items():
            key = collision_key(name)
            if key is None:
                continue
            group = groups.setdefault(key, set(base.get(key, ())))
            if topic_id is None:
                group.discard(name)
            else:
                group.add(name)
        return _changed(base, {key: tuple(sorted(names)) or None for key, names in groups.items()})

    def _topic(self, topic_id: Uuid) -> _TopicDraft:
        if topic_id in self.topics:
            draft = self.topics[topic_id]
        else:
            image = self.base.topic_by_id(topic_id)
            draft = None
            if image is not None:
                draft = _TopicDraft(image.name, topic_id, dict(image.partitions))
        if draft is None:
            raise InvalidMetadataLog(f"there is no topic of the id {uuid_to_text(topic_id)}")
        self.topics[topic_id] = draft
        return draft

    def _topic_id(self, name: TopicName) -> Uuid | None:
        if name in self._topic_ids:
            return self._topic_ids[name]
        topic = self.base.topic(name)
        return None if topic is None else topic.id

    def topic_record(self, record: schema.TopicRecord) -> None:
        """A topic is created."""
        if self._topic_id(record.name) is not None:
            raise InvalidMetadataLog(f"topic '{record.name}' is created, but it is already there")
        if self.topics.get(record.topic_id, self.base.topic_by_id(record.topic_id)) is not None:
            text = uuid_to_text(record.topic_id)
            raise InvalidMetadataLog(f"topic '{record.name}' has the id {text} of another one")
        self.topics[record.topic_id] = _TopicDraft(record.name, record.topic_id, {})
        self._topic_ids[record.name] = record.topic_id

    def remove_topic(self, record: schema.RemoveTopicRecord) -> None:
        """A topic is deleted, and its configs with it."""
        topic = self._topic(record.topic_id)
        self.topics[record.topic_id] = None
        self._topic_ids[topic.name] = None
        self.configs[ConfigResource(ResourceType.TOPIC, topic.name)] = None

    def partition_record(self, record: schema.PartitionRecord) -> None:
        """A partition is created, or written again."""
        topic = self._topic(record.topic_id)
        topic.partitions[record.partition_id] = partition_from_record(record)

    def partition_change(self, record: schema.PartitionChangeRecord) -> None:
        """A partition changes."""
        partitions = self._topic(record.topic_id).partitions
        before = partitions.get(record.partition_id)
        if before is None:
            raise InvalidMetadataLog(
                f"there is no partition {record.partition_id} in the topic of the id "
                f"{uuid_to_text(record.topic_id)}"
            )
        partitions[record.partition_id] = before.changed_by(record)

    def clear_elr(self, record: schema.ClearElrRecord) -> None:
        """The eligible leader replicas of one topic, or of all of them, are cleared."""
        if record.topic_name:
            topic_id = self._topic_id(record.topic_name)
            if topic_id is None:
                raise InvalidMetadataLog(f"there is no topic '{record.topic_name}'")
            topic_ids = {topic_id}
        else:
            topic_ids = set(self.base.topics_by_id) | self.topics.keys()
            topic_ids -= {topic_id for topic_id, draft in self.topics.items() if draft is None}
        for topic_id in sorted(topic_ids):
            draft = self.topics.get(topic_id) or self.base.topics_by_id[topic_id]
            for index, partition in list(draft.partitions.items()):
                if partition.elr or partition.last_known_elr:
                    cleared = schema.PartitionChangeRecord(
                        eligible_leader_replicas=(), last_known_elr=()
                    )
                    self._topic(topic_id).partitions[index] = partition.changed_by(cleared)

    def config(self, record: schema.ConfigRecord) -> None:
        """A config is set, or removed by a null."""
        resource = ConfigResource(record.resource_type, record.resource_name)
        if resource in self.configs:
            configs = self.configs[resource] or {}
        else:
            configs = dict(self.base.config(resource))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        self.configs[resource] = configs or None

    def feature_level(self, record: schema.FeatureLevelRecord) -> None:
        """A feature is finalized at a level; 0 removes it.

        The quorum itself keeps kraft.version; records of early releases about it are ignored.
        """
        if record.name == KRAFT_VERSION:
            return
        if record.feature_level == 0 and record.name != METADATA_VERSION:
            self._features.pop(record.name, None)
        else:
            self._features[record.name] = record.feature_level

    def producer_ids(self, record: schema.ProducerIdsRecord) -> None:
        """A block of producer ids was allocated."""
        if record.next_producer_id < self._next_producer_id:
            raise InvalidMetadataLog(
                f"the next producer id falls from {self._next_producer_id} to "
                f"{record.next_producer_id}"
            )
        self._next_producer_id = record.next_producer_id

    def register_broker(self, record: schema.RegisterBrokerRecord) -> None:
        """A broker registers, registers again, or has new addresses."""
        self.brokers[record.broker_id] = BrokerRegistration(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints={
                each.name: Endpoint(each.name, each.host, each.port, each.security_protocol)
                for each in record.end_points
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            features={
                each.name: VersionRange(each.min_supported_version, each.max_supported_version)
                for each in record.features
            },
            log_dirs=record.log_dirs,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            offset=self.offset,
        )

    def unregister_broker(self, record: schema.UnregisterBrokerRecord) -> None:
        """A broker is unregistered."""
        self._registration(record.broker_id, record.broker_epoch)
        self.brokers[record.broker_id] = None

    def fence_broker(self, record: schema.FenceBrokerRecord) -> None:
        """A broker is fenced, as early releases wrote it."""
        broker = self._registration(record.id, record.epoch)
        self.brokers[record.id] = replace(broker, fenced=True)

    def unfence_broker(self, record: schema.UnfenceBrokerRecord) -> None:
        """A broker is unfenced, as early releases wrote it."""
        broker = self._registration(record.id, record.epoch)
        self.brokers[record.id] = replace(broker, fenced=False)

    def broker_change(self, record: schema.BrokerRegistrationChangeRecord) -> None:
        """A broker is fenced or unfenced, begins to shut down, or loses a directory."""
        broker = self._registration(record.broker_id, record.broker_epoch)
        if record.fenced not in (UNFENCE, 0, FENCE) or record.in_controlled_shutdown not in (0, 1):
            raise InvalidMetadataLog(f"{record!r} has a state of no meaning")
        self.brokers[record.broker_id] = replace(
            broker,
            fenced=record.fenced == FENCE if record.fenced else broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown
            or record.in_controlled_shutdown == ENTER_CONTROLLED_SHUTDOWN,
            log_dirs=record.log_dirs or broker.log_dirs,
        )

    def _registration(self, broker_id: BrokerId, epoch: int) -> BrokerRegistration:
        if broker_id in self.brokers:
            broker = self.brokers[broker_id]
        else:
            broker = self.base.broker(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InvalidMetadataLog(f"there is no broker {broker_id} of the epoch {epoch}")
        return broker

    def register_controller(self, record: schema.RegisterControllerRecord) -> None:
        """A controller registers."""
        self._controllers[record.controller_id] = record

    def acl(self, record: schema.AccessControlEntryRecord) -> None:
        """An access rule is added."""
        self.acls[record.id] = record

    def remove_acl(self, record: schema.RemoveAccessControlEntryRecord) -> None:
        """An access rule is removed."""
        self.acls[record.id] = None

    def scram(self, record: schema.UserScramCredentialRecord) -> None:
        """A user's password is set."""
        self._scram[ScramKey(record.mechanism, record.name)] = record

    def remove_scram(self, record: schema.RemoveUserScramCredentialRecord) -> None:
        """A user's password is removed."""
        self._scram[ScramKey(record.mechanism, record.name)] = None

    def token(self, record: schema.DelegationTokenRecord) -> None:
        """A delegation token is created or renewed."""
        self._tokens[record.token_id] = record

    def remove_token(self, record: schema.RemoveDelegationTokenRecord) -> None:
        """A delegation token is removed."""
        self._tokens[record.token_id] = None

    def quota(self, record: schema.ClientQuotaRecord) -> None:
        """A quota is set or removed."""
        entity = quota_entity(record.entity)
        self._quotas[QuotaKey(entity, record.key)] = None if record.remove else record

    def nothing(self, record: MetadataRecord) -> None:
        """A record that only advances the log, or belongs to a migration that ended long ago."""


def _topic_image(draft: _TopicDraft) -> TopicImage:
    partitions = draft.partitions
    indexes = list(partitions)
    ascending = sorted(indexes)
    if indexes != ascending:
        partitions = {index: partitions[index] for index in ascending}
    return TopicImage(draft.name, draft.id, partitions)


def _changed(base: PersistentMap[K, V], changes: Mapping[K, V | None]) -> PersistentMap[K, V]:
    if not changes:
        return base
    put = {key: value for key, value in changes.items() if value is not None}
    return base.changed(put, [key for key, value in changes.items() if value is None])


_HANDLERS: dict[type[MetadataRecord], Callable[[Draft, Any], None]] = {
    schema.RegisterBrokerRecord: Draft.register_broker,
    schema.UnregisterBrokerRecord: Draft.unregister_broker,
    schema.TopicRecord: Draft.topic_record,
    schema.PartitionRecord: Draft.partition_record,
    schema.ConfigRecord: Draft.config,
    schema.PartitionChangeRecord: Draft.partition_change,
    schema.FenceBrokerRecord: Draft.fence_broker,
    schema.UnfenceBrokerRecord: Draft.unfence_broker,
    schema.RemoveTopicRecord: Draft.remove_topic,
    schema.DelegationTokenRecord: Draft.token,
    schema.UserScramCredentialRecord: Draft.scram,
    schema.FeatureLevelRecord: Draft.feature_level,
    schema.ClientQuotaRecord: Draft.quota,
    schema.ProducerIdsRecord: Draft.producer_ids,
    schema.BrokerRegistrationChangeRecord: Draft.broker_change,
    schema.AccessControlEntryRecord: Draft.acl,
    schema.RemoveAccessControlEntryRecord: Draft.remove_acl,
    schema.NoOpRecord: Draft.nothing,
    schema.ZkMigrationStateRecord: Draft.nothing,
    schema.RemoveUserScramCredentialRecord: Draft.remove_scram,
    schema.RemoveDelegationTokenRecord: Draft.remove_token,
    schema.RegisterControllerRecord: Draft.register_controller,
    schema.ClearElrRecord: Draft.clear_elr,
}
