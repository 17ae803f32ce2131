"""The partitions that are concerned when brokers come and go, and their new leaders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dohle.core.ids import BrokerId, Uuid
from dohle.core.steps import PlainSteps
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.metadata.partition import NO_LEADER, PartitionImage
from dohle.metadata.partition_change import Election, Rules, partition_change


@dataclass(frozen=True, slots=True)
class Availability:
    """A broker's change of state, beyond what the image already says; -1 means none."""

    #: It goes: it leaves the ISR and cannot lead.
    leaves: int = NO_LEADER
    #: It comes: it may lead, though it is still fenced in the image.
    joins: int = NO_LEADER
    #: It comes back after a crash: its records may be lost, so it leaves the ELR as well.
    crashed: int = NO_LEADER
    #: It goes for ever: partitions for which it is only eligible are looked at as well.
    is_unregistered: bool = False
    #: If not empty, it goes only where its replica is in one of these directories.
    lost_directories: tuple[Uuid, ...] = ()


def leader_updates(
    image: ClusterImage, context: ControllerContext, change: Availability
) -> PlainSteps[list[VersionedRecord]]:
    """Return the changes of all partitions that a broker's change affects."""
    records = []
    gone = (change.leaves, change.crashed)
    for topic in image.topics.values():
        rules: Rules | None = None
        for index, before in topic.partitions.items():
            if not _concerns(change, before):
                continue
            rules = rules or _rules_of(image, context, topic, change)
            isr = tuple(replica for replica in before.isr if replica not in gone)
            wanted = replace(before, isr=isr)
            record = partition_change(before, wanted, topic.id, index, rules)
            if record is not None:
                records.append(record)
            yield
        yield
    return records


def partition_update(
    image: ClusterImage,
    context: ControllerContext,
    topic: TopicImage,
    index: int,
    wanted: PartitionImage,
    election: Election | None = None,
) -> VersionedRecord | None:
    """Return the record that makes a partition what is wanted, with a leader that fits.

    The kind of election is the topic's, unless it is told.
    """
    rules = _rules_of(image, context, topic, Availability())
    if election is not None:
        rules = replace(rules, election=election)
    return partition_change(topic.partitions[index], wanted, topic.id, index, rules)


def leads_any(image: ClusterImage, broker_id: int) -> PlainSteps[bool]:
    """Tell whether the broker leads a partition."""
    for topic in image.topics.values():
        if any(partition.leader == broker_id for partition in topic.partitions.values()):
            return True
        yield
    return False


def _concerns(change: Availability, partition: PartitionImage) -> bool:
    if change.joins != NO_LEADER:
        return partition.leader == NO_LEADER
    if change.lost_directories:
        return (
            change.leaves in partition.replicas
            and partition.directory_of(change.leaves) in change.lost_directories
        )
    return (
        change.leaves in partition.isr
        or change.crashed in partition.isr
        or change.crashed in partition.elr
        or (change.is_unregistered and change.leaves in partition.elr)
    )


def _rules_of(
    image: ClusterImage, context: ControllerContext, topic: TopicImage, change: Availability
) -> Rules:
    assert image.metadata_version is not None
    replication_factor = len(next(iter(topic.partitions.values())).replicas)
    is_unclean = context.allows_unclean_election(image, topic.name)
    return Rules(
        level=image.metadata_version,
        elr_enabled=image.is_elr_enabled,
        min_isr=min(context.min_insync_replicas(image, topic.name), replication_factor),
        election=Election.UNCLEAN if is_unclean else Election.ONLINE,
        crashed=change.crashed,
        may_lead=_may_lead(image, change),
    )


def _may_lead(
    image: ClusterImage, change: Availability
) -> Callable[[PartitionImage, BrokerId], bool]:
    def may_lead(partition: PartitionImage, replica: BrokerId) -> bool:
        broker = image.broker(replica)
        if broker is None or replica in (change.leaves, change.crashed):
            return False
        if replica not in partition.replicas:
            return False
        online = broker.has_online_dir(partition.directory_of(replica))
        return online and (replica == change.joins or broker.is_active)

    return may_lead
