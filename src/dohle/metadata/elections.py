"""Leader election when brokers come and go: computes the records of the changes.

A leader must be online and in the ISR or, with eligible leader replicas (KIP-966), in the ELR when
the ISR is empty. The current leader stays if it qualifies; else the first replica in the order of
the assignment that does is elected. If there is none and ELR is on, the last known leader is
elected if it is back; else, if the topic allows unclean elections, the first online replica; else
there is no leader, and without ELR the last ISR is kept until one of its members returns.

ELR: when the ISR falls below the minimum, replicas that leave it move to the ELR, unless they went
down uncleanly; when it is back at the minimum, the ELR is cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dohle.core.ids import BrokerId, Uuid
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.metadata.metadata_version import (
    bumps_leader_epoch_on_isr_shrink,
    partition_record_version,
    supports_directories,
)
from dohle.metadata.partition import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    LeaderRecoveryState,
    PartitionImage,
)
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord

Replicas = tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Availability:
    """A broker's change of state, beyond what the image already says; -1 means none."""

    #: It goes: it leaves the ISR and cannot lead.
    leaves: int = NO_LEADER
    #: It comes: it may lead, though it is still fenced in the image.
    joins: int = NO_LEADER
    #: It comes back after a crash: its records may be lost, so it leaves the ELR as well.
    crashed: int = NO_LEADER
    #: If not empty, it goes only where its replica is in one of these directories.
    lost_directories: tuple[Uuid, ...] = ()


def leader_updates(
    image: ClusterImage, context: ControllerContext, change: Availability
) -> Iterator[VersionedRecord]:
    """Return the changes of all partitions that a broker's change affects."""
    for topic in image.topics.values():
        rules: _Rules | None = None
        for index, partition in topic.partitions.items():
            if not _concerns(change, partition):
                continue
            rules = rules or _rules_of(image, context, topic, change)
            left = (change.leaves, change.crashed)
            isr = tuple(replica for replica in partition.isr if replica not in left)
            record = _partition_change(partition, topic.id, index, isr, rules)
            if record is not None:
                yield record


def partition_update(
    image: ClusterImage,
    context: ControllerContext,
    topic: TopicImage,
    index: int,
    target: PartitionImage,
    *,
    prefers_first: bool = False,
    unclean: bool = False,
) -> VersionedRecord | None:
    """Return the record that makes a partition what ``target`` says, with a leader that fits.

    ``prefers_first`` moves the leadership to the first replica if that one may lead; ``unclean``
    elects even a replica that is not in sync, if there is no other.
    """
    rules = _rules_of(image, context, topic, Availability())
    rules = replace(
        rules, prefers_first=prefers_first, allows_unclean=unclean or rules.allows_unclean
    )
    before = topic.partitions[index]
    # The ISR is compared with the one before the change, so that shrinking it is seen.
    moved = replace(target, isr=before.isr)
    change = _partition_change(moved, topic.id, index, target.isr, rules)
    bare = PartitionChangeRecord(partition_id=index, topic_id=topic.id)
    record = bare if change is None else change.record
    assert isinstance(record, PartitionChangeRecord)
    if target.replicas != before.replicas:
        directories = target.directories if supports_directories(rules.level) else None
        record = record.replace(replicas=target.replicas, directories=directories)
    if target.adding_replicas != before.adding_replicas:
        record = record.replace(adding_replicas=target.adding_replicas)
    if target.removing_replicas != before.removing_replicas:
        record = record.replace(removing_replicas=target.removing_replicas)
    if record == bare:
        return None
    return VersionedRecord(record, partition_record_version(rules.level))


def leads_any(image: ClusterImage, broker_id: int) -> bool:
    """Tell whether the broker leads a partition."""
    return any(
        partition.leader == broker_id
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    )


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
    )


@dataclass(frozen=True, slots=True)
class _Rules:
    level: int
    elr_enabled: bool
    min_isr: int
    allows_unclean: bool
    crashed: int
    may_lead: Callable[[PartitionImage, BrokerId], bool]
    #: Whether the first replica goes before the one that leads.
    prefers_first: bool = False


def _rules_of(
    image: ClusterImage, context: ControllerContext, topic: TopicImage, change: Availability
) -> _Rules:
    def may_lead(partition: PartitionImage, replica: BrokerId) -> bool:
        broker = image.broker(replica)
        if broker is None or replica in (change.leaves, change.crashed):
            return False
        if replica not in partition.replicas:
            return False
        online = broker.has_online_dir(partition.directory_of(replica))
        return online and (replica == change.joins or broker.is_active)

    assert image.metadata_version is not None
    replication_factor = len(next(iter(topic.partitions.values())).replicas)
    return _Rules(
        level=image.metadata_version,
        elr_enabled=image.is_elr_enabled,
        min_isr=min(context.min_insync_replicas(image, topic.name), replication_factor),
        allows_unclean=context.allows_unclean_election(image, topic.name),
        crashed=change.crashed,
        may_lead=may_lead,
    )


def _partition_change(
    partition: PartitionImage, topic_id: Uuid, index: int, isr: Replicas, rules: _Rules
) -> VersionedRecord | None:
    elr = _eligible(partition, isr, rules)
    leader, unclean = _elect(partition, isr, elr, rules)
    new_leader = leader if leader != partition.leader else NO_LEADER_CHANGE
    recovery = -1
    if new_leader >= 0:
        if leader in elr:
            isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
        if unclean:
            isr, elr = (leader,), ()
            if partition.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                recovery = LeaderRecoveryState.RECOVERING
    new_isr = isr if isr != partition.isr and (isr or rules.elr_enabled) else None
    shrinks = new_isr is not None and not set(partition.isr) <= set(new_isr)
    if shrinks and new_leader == NO_LEADER_CHANGE and bumps_leader_epoch_on_isr_shrink(rules.level):
        new_leader = partition.leader
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=new_isr,
        leader=new_leader,
        leader_recovery_state=recovery,
        eligible_leader_replicas=elr if elr != partition.elr else None,
        last_known_elr=_last_known_leader(partition, new_leader, rules),
    )
    if record == PartitionChangeRecord(partition_id=index, topic_id=topic_id):
        return None
    return VersionedRecord(record, partition_record_version(rules.level))


def _eligible(partition: PartitionImage, isr: Replicas, rules: _Rules) -> Replicas:
    if not rules.elr_enabled or len(isr) >= rules.min_isr:
        return ()
    candidates = dict.fromkeys((*partition.elr, *partition.isr))
    return tuple(
        replica for replica in candidates if replica not in isr and replica != rules.crashed
    )


def _elect(
    partition: PartitionImage, isr: Replicas, elr: Replicas, rules: _Rules
) -> tuple[BrokerId, bool]:
    """Return the leader, and whether it may lack acknowledged records."""
    eligible = isr or elr
    first = partition.replicas[:1] if rules.prefers_first else ()
    for replica in (*first, partition.leader, *partition.replicas):
        if replica in eligible and rules.may_lead(partition, replica):
            return replica, False
    if rules.elr_enabled and not eligible and len(partition.last_known_elr) == 1:
        last_leader = partition.last_known_elr[0]
        if rules.may_lead(partition, last_leader):
            return last_leader, True
    if rules.allows_unclean:
        for replica in partition.replicas:
            if rules.may_lead(partition, replica):
                return replica, True
    return NO_LEADER, False


def _last_known_leader(
    partition: PartitionImage, new_leader: BrokerId, rules: _Rules
) -> Replicas | None:
    if not rules.elr_enabled:
        return None
    if new_leader == NO_LEADER and not partition.last_known_elr:
        return (partition.leader,)
    if new_leader >= 0 and partition.last_known_elr:
        return ()
    return None
