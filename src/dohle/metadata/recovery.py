"""Rebuilding the metadata of topics from the folders of their partitions.

What is left of the metadata log comes first; folders tell the rest: names, topic ids, how many
partitions there are, and the newest leader epoch. They do not tell a topic's configs. A topic whose
configs are lost keeps its records for good until somebody sets its retention, because a default of
seven days might delete at once what was just found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.image import ClusterImage, ConfigResource, ResourceType, TopicImage
from dohle.metadata.partition import DIRECTORY_UNASSIGNED, NO_LEADER, PartitionImage
from dohle.metadata.replay import apply
from dohle.protocol.messages.records.cluster_metadata import (
    ConfigRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

#: What a topic gets whose configs are lost.
KEPT_FOR_GOOD: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}


class FoundLog(NamedTuple):
    """A partition's folder, as far as it matters here."""

    partition: TopicPartition
    #: None if the folder does not say.
    topic_id: Uuid | None
    directory_id: Uuid
    #: The newest in the log; -1 if it has none.
    leader_epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class RecoveredTopic:
    """A topic that folders were found of."""

    name: TopicName
    id: Uuid
    partitions: int
    size: int
    #: The metadata log still knows it.
    was_known: bool
    #: Partitions without a folder: they begin empty.
    without_folder: tuple[int, ...]
    has_configs: bool


@dataclass(slots=True)
class RecoveredMetadata:
    """The image after recovery, and what it took."""

    image: ClusterImage
    topics: list[RecoveredTopic] = field(default_factory=list)
    #: Folders that stay out of it, and why.
    left_out: list[tuple[TopicPartition, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """What else a recovery has to know."""

    node_id: BrokerId
    #: Whether a topic of this id, or without an id of this name, is known to have been deleted.
    was_deleted: Callable[[Uuid | None, TopicName], bool]
    new_topic_id: Callable[[], Uuid]
    #: The configs of topics that coordinators use.
    internal_configs: Mapping[TopicName, Mapping[str, str]]
    #: Above every producer id in use; -1 if there is none.
    next_producer_id: int


def recover_metadata(
    image: ClusterImage, found: Sequence[FoundLog], context: RecoveryContext
) -> RecoveredMetadata:
    """Bring an image, which must have been bootstrapped, in line with the folders."""
    recovered = RecoveredMetadata(image)
    by_topic: dict[TopicName, list[FoundLog]] = {}
    for log in found:
        by_topic.setdefault(log.partition.topic, []).append(log)
    for name in sorted(by_topic):
        _recover_topic(recovered, name, by_topic[name], context)
    if context.next_producer_id > recovered.image.next_producer_id:
        record = ProducerIdsRecord(
            broker_id=BrokerId(-1), broker_epoch=-1, next_producer_id=context.next_producer_id
        )
        _replay(recovered, [VersionedRecord(record, 0)])
    return recovered


def _recover_topic(
    recovered: RecoveredMetadata, name: TopicName, logs: list[FoundLog], context: RecoveryContext
) -> None:
    known = recovered.image.topic(name)
    topic_id, logs = _choose_id(recovered, known, logs, context)
    if not logs:
        return
    was_known = known is not None and known.id == topic_id
    records: list[VersionedRecord] = []
    if not was_known:
        if known is not None:
            records.append(VersionedRecord(RemoveTopicRecord(topic_id=known.id), 0))
        records.append(VersionedRecord(TopicRecord(name=name, topic_id=topic_id), 0))
        _replay(recovered, records)
    topic = recovered.image.topics_by_id[topic_id]
    by_index = {log.partition.partition: log for log in logs}
    count = max([*by_index, *topic.partitions]) + 1
    level = recovered.image.metadata_version
    assert level is not None, "it was bootstrapped"
    partitions = [
        partition.to_record(topic_id, index, level)
        for index in range(count)
        if (partition := _partition(topic.partitions.get(index), by_index.get(index), context))
    ]
    configs = recovered.image.topic_config(name)
    has_configs = was_known or name in context.internal_configs
    if not was_known:
        wanted = {**context.internal_configs.get(name, KEPT_FOR_GOOD), **configs}
        partitions += _configs(name, wanted)
    _replay(recovered, partitions)
    recovered.topics.append(
        RecoveredTopic(
            name,
            topic_id,
            count,
            sum(log.size for log in logs),
            was_known,
            tuple(index for index in range(count) if index not in by_index),
            has_configs,
        )
    )


def _choose_id(
    recovered: RecoveredMetadata,
    known: TopicImage | None,
    logs: list[FoundLog],
    context: RecoveryContext,
) -> tuple[Uuid, list[FoundLog]]:
    """Return the topic's id and the folders that are of it; the others are left out.

    If the metadata log's own topic of this name has no folder, the folders' is newer than the log.
    """
    kept: list[FoundLog] = []
    for log in logs:
        is_known = known is not None and log.topic_id in (None, known.id)
        if not is_known and context.was_deleted(log.topic_id, log.partition.topic):
            recovered.left_out.append((log.partition, "its topic was deleted"))
        else:
            kept.append(log)
    sizes: dict[Uuid, int] = {}
    for log in kept:
        if log.topic_id is not None:
            sizes[log.topic_id] = sizes.get(log.topic_id, 0) + 1 + log.size
    if known is not None and (known.id in sizes or not sizes):
        chosen = known.id
    elif sizes:
        chosen = max(sizes, key=lambda each: (sizes[each], each))
    else:
        chosen = context.new_topic_id()
    ours = [log for log in kept if log.topic_id in (None, chosen)]
    for log in kept:
        if log not in ours:
            recovered.left_out.append((log.partition, "it is of another topic of that name"))
    return chosen, ours


def _partition(
    known: PartitionImage | None, log: FoundLog | None, context: RecoveryContext
) -> PartitionImage | None:
    """Return a partition as it is to be; None if it is so already.

    It has no leader: the start elects one, in an epoch above all that the log has seen.
    """
    node_id = context.node_id
    if known is None:
        directory = DIRECTORY_UNASSIGNED if log is None else log.directory_id
        return PartitionImage(
            replicas=(node_id,),
            directories=(directory,),
            isr=(node_id,),
            leader=NO_LEADER,
            leader_epoch=max(0, -1 if log is None else log.leader_epoch),
            partition_epoch=0,
        )
    if log is None or node_id not in known.replicas:
        return None
    directories = tuple(
        log.directory_id if replica == node_id else directory
        for replica, directory in zip(known.replicas, known.directories, strict=True)
    )
    if log.leader_epoch <= known.leader_epoch and directories == known.directories:
        return None
    return replace(
        known,
        directories=directories,
        leader=NO_LEADER,
        leader_epoch=max(known.leader_epoch, log.leader_epoch),
        partition_epoch=known.partition_epoch + 1,
    )


def _configs(name: TopicName, configs: Mapping[str, str]) -> Iterator[VersionedRecord]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    for key, value in configs.items():
        record = ConfigRecord(
            resource_type=resource.type, resource_name=resource.name, name=key, value=value
        )
        yield VersionedRecord(record, 0)


def _replay(recovered: RecoveredMetadata, records: Sequence[VersionedRecord]) -> None:
    image = recovered.image
    recovered.image, _ = apply(image, [each.record for each in records], image.offset, image.epoch)
