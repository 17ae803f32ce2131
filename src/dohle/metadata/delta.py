"""The difference between two images: all that a broker has to act on.

Lists are in ascending order of name, id or resource. What was created and deleted again in between
does not appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.metadata.image import BrokerRegistration, ClusterImage, ConfigResource, TopicImage
from dohle.metadata.partition import PartitionImage
from dohle.protocol.messages.records.cluster_metadata import AccessControlEntryRecord

K = TypeVar("K")
V = TypeVar("V")


class PartitionChange(NamedTuple):
    """A partition that is new or has changed."""

    topic: TopicName
    topic_id: Uuid
    partition: int
    before: PartitionImage | None
    after: PartitionImage


class ConfigDelta(NamedTuple):
    """A resource whose configs differ."""

    resource: ConfigResource
    before: Mapping[str, str]
    after: Mapping[str, str]


class BrokerChange(NamedTuple):
    """A broker that was added, removed or changed."""

    id: BrokerId
    before: BrokerRegistration | None
    after: BrokerRegistration | None


class FeatureChange(NamedTuple):
    """A feature whose finalized level differs; None is not finalized."""

    name: str
    before: int | None
    after: int | None


class AclChange(NamedTuple):
    """An ACL that was added or removed."""

    id: Uuid
    before: AccessControlEntryRecord | None
    after: AccessControlEntryRecord | None


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference; false when there is none."""

    created_topics: tuple[TopicImage, ...] = ()
    #: With their previous contents.
    deleted_topics: tuple[TopicImage, ...] = ()
    #: Including those of created topics, excluding those of deleted ones.
    changed_partitions: tuple[PartitionChange, ...] = ()
    changed_configs: tuple[ConfigDelta, ...] = ()
    changed_brokers: tuple[BrokerChange, ...] = ()
    changed_features: tuple[FeatureChange, ...] = ()
    changed_acls: tuple[AclChange, ...] = ()
    #: None if it is unchanged.
    next_producer_id: int | None = None

    def __bool__(self) -> bool:
        return self != _NO_CHANGE


_NO_CHANGE = Delta()


def difference(before: ClusterImage, after: ClusterImage) -> Delta:
    """Compare two images completely; on loading, the difference from the empty image."""
    return difference_in(
        before,
        after,
        topic_ids=before.topics_by_id.keys() | after.topics_by_id.keys(),
        resources=before.configs.keys() | after.configs.keys(),
        broker_ids=before.brokers.keys() | after.brokers.keys(),
        acl_ids=before.acls.keys() | after.acls.keys(),
    )


def difference_in(
    before: ClusterImage,
    after: ClusterImage,
    *,
    topic_ids: Iterable[Uuid],
    resources: Iterable[ConfigResource],
    broker_ids: Iterable[BrokerId],
    acl_ids: Iterable[Uuid],
) -> Delta:
    """Compare only the topics, configs, brokers and ACLs that may differ, and the rest."""
    created = []
    deleted = []
    partitions: list[PartitionChange] = []
    for topic_id in topic_ids:
        was, now = before.topic_by_id(topic_id), after.topic_by_id(topic_id)
        if was is now:
            continue
        if now is None:
            assert was is not None
            deleted.append(was)
            continue
        if was is None:
            created.append(now)
        partitions.extend(_changed_partitions(was, now))
    producer_id = after.next_producer_id
    return Delta(
        created_topics=tuple(sorted(created, key=lambda topic: topic.name)),
        deleted_topics=tuple(sorted(deleted, key=lambda topic: topic.name)),
        changed_partitions=tuple(sorted(partitions, key=lambda each: (each.topic, each.partition))),
        changed_configs=tuple(
            ConfigDelta(resource, was or {}, now or {})
            for resource, was, now in _changed(before.configs, after.configs, resources)
        ),
        changed_brokers=tuple(
            BrokerChange(*change) for change in _changed(before.brokers, after.brokers, broker_ids)
        ),
        changed_features=tuple(
            FeatureChange(*change)
            for change in _changed(
                before.features, after.features, before.features.keys() | after.features.keys()
            )
        ),
        changed_acls=tuple(
            AclChange(*change) for change in _changed(before.acls, after.acls, acl_ids)
        ),
        next_producer_id=None if producer_id == before.next_producer_id else producer_id,
    )


def _changed_partitions(was: TopicImage | None, now: TopicImage) -> Iterator[PartitionChange]:
    partitions: Mapping[int, PartitionImage] = {} if was is None else was.partitions
    for index, partition in now.partitions.items():
        previous = partitions.get(index)
        if previous is not partition and previous != partition:
            yield PartitionChange(now.name, now.id, index, previous, partition)


def _changed(
    before: Mapping[K, V], after: Mapping[K, V], keys: Iterable[Any]
) -> Iterator[tuple[K, V | None, V | None]]:
    if before is after:
        return
    for key in sorted(keys):
        was, now = before.get(key), after.get(key)
        if was is not now and was != now:
            yield key, was, now
