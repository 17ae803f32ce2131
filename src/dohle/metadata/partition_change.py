"""One partition's change: from what is wanted of it to the record that says so.

Whoever wants something different says which replicas, which ISR. What follows from that is decided
here, always in the same order: a reassignment is completed if all its replicas are in sync; then
the eligible leader replicas, the leader, and the epochs follow.

A leader must be online and in the ISR or, with eligible leader replicas (KIP-966), in the ELR when
the ISR is empty. The current leader stays if it qualifies; else the first replica in the order of
the assignment that does is elected. If there is none and ELR is on, the last known leader is
elected if it is back; else, if the election may be unclean, the first online replica; else there
is no leader, and without ELR the last ISR is kept until one of its members returns.

ELR: when the ISR falls below the minimum, replicas that leave it move to the ELR, unless they went
down uncleanly; when it is back at the minimum, the ELR is cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from dohle.core.ids import BrokerId, Uuid
from dohle.metadata.decision import VersionedRecord
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

_NO_RECOVERY_CHANGE = -1


class Election(Enum):
    """Which leader is wanted, if the present one does not stay."""

    #: One that has all acknowledged records.
    ONLINE = "online"
    #: The first replica, even in place of another that leads.
    PREFERRED = "preferred"
    #: Any, rather than none.
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the changes of a topic's partitions depend on, besides the partition."""

    level: int
    elr_enabled: bool
    min_isr: int
    election: Election
    may_lead: Callable[[PartitionImage, BrokerId], bool]
    #: A broker that went down uncleanly: it is not eligible.
    crashed: int = NO_LEADER


@dataclass(frozen=True, slots=True)
class _Outcome:
    leader: BrokerId
    isr: Replicas
    elr: Replicas
    is_unclean: bool


def partition_change(
    before: PartitionImage, wanted: PartitionImage, topic_id: Uuid, index: int, rules: Rules
) -> VersionedRecord | None:
    """Return the record of a change; None if nothing changes.

    Of what is ``wanted``, the leader, the ELR and the epochs do not count: they follow.
    """
    wanted = _completed(wanted)
    outcome = _elected(before, wanted, rules)
    isr = _new_isr(before, outcome, rules)
    leader = _leader_field(before, wanted, outcome, isr, rules)
    bare = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    replicas, directories = wanted.replicas, wanted.directories
    record = bare.replace(
        isr=isr,
        leader=leader,
        eligible_leader_replicas=_different(outcome.elr, before.elr),
        last_known_elr=_last_known_leader(before, leader, isr) if rules.elr_enabled else None,
        replicas=_different(replicas, before.replicas),
        directories=directories
        if directories != before.directories and supports_directories(rules.level)
        else None,
        adding_replicas=_different(wanted.adding_replicas, before.adding_replicas),
        removing_replicas=_different(wanted.removing_replicas, before.removing_replicas),
        leader_recovery_state=_recovery_field(before, wanted, outcome),
    )
    if record == bare:
        return None
    return VersionedRecord(record, partition_record_version(rules.level))


def with_replicas(
    partition: PartitionImage, replicas: Replicas, new_directory: Callable[[BrokerId], Uuid]
) -> PartitionImage:
    """Return the partition with other replicas; those it has stay in their directories."""
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    return replace(
        partition,
        replicas=replicas,
        directories=tuple(
            directories[replica] if replica in directories else new_directory(replica)
            for replica in replicas
        ),
    )


def _completed(wanted: PartitionImage) -> PartitionImage:
    """Remove what a reassignment is to remove, once all other replicas are in sync."""
    removing = wanted.removing_replicas
    if not (removing or wanted.adding_replicas):
        return wanted
    isr = tuple(replica for replica in wanted.isr if replica not in removing)
    left = [
        (replica, directory)
        for replica, directory in zip(wanted.replicas, wanted.directories, strict=True)
        if replica not in removing
    ]
    if not isr or not left or not {replica for replica, _ in left} <= set(isr):
        return wanted
    return replace(
        wanted,
        replicas=tuple(replica for replica, _ in left),
        directories=tuple(directory for _, directory in left),
        isr=isr,
        adding_replicas=(),
        removing_replicas=(),
    )


def _elected(before: PartitionImage, wanted: PartitionImage, rules: Rules) -> _Outcome:
    isr = wanted.isr
    elr = _eligible(before, wanted, rules)
    leader, is_unclean = _elect(before, wanted, elr, rules)
    if leader == before.leader:
        return _Outcome(leader, isr, elr, is_unclean=False)
    if is_unclean:
        return _Outcome(leader, (leader,), (), is_unclean=True)
    if leader in elr:
        return _Outcome(leader, (leader,), _without(elr, leader), is_unclean=False)
    return _Outcome(leader, isr, elr, is_unclean=False)


def _eligible(before: PartitionImage, wanted: PartitionImage, rules: Rules) -> Replicas:
    isr = wanted.isr
    if not rules.elr_enabled or len(isr) >= rules.min_isr:
        return ()
    # Stricter than Kafka: a replica that is reassigned away is deleted. If it stayed eligible, and
    # were assigned again, it could be elected with an empty log.
    candidates = [each for each in (*before.elr, *before.isr) if each in wanted.replicas]
    return tuple(
        replica
        for replica in dict.fromkeys(candidates)
        if replica not in isr and replica != rules.crashed
    )


def _elect(
    before: PartitionImage, wanted: PartitionImage, elr: Replicas, rules: Rules
) -> tuple[BrokerId, bool]:
    """Return the leader, and whether it may lack acknowledged records."""
    eligible = wanted.isr or elr
    first = wanted.replicas[:1] if rules.election is Election.PREFERRED else ()
    for replica in (*first, before.leader, *wanted.replicas):
        if replica in eligible and rules.may_lead(wanted, replica):
            return replica, False
    if rules.elr_enabled and not eligible and len(before.last_known_elr) == 1:
        last_leader = before.last_known_elr[0]
        if rules.may_lead(wanted, last_leader):
            return last_leader, True
    if rules.election is Election.UNCLEAN:
        for replica in wanted.replicas:
            if rules.may_lead(wanted, replica):
                return replica, True
    return NO_LEADER, False


def _new_isr(before: PartitionImage, outcome: _Outcome, rules: Rules) -> Replicas | None:
    """Return the ISR to write. Without ELR its last members stay, to be waited for."""
    if outcome.isr == before.isr or not (outcome.isr or rules.elr_enabled):
        return None
    return outcome.isr


def _leader_field(
    before: PartitionImage,
    wanted: PartitionImage,
    outcome: _Outcome,
    isr: Replicas | None,
    rules: Rules,
) -> BrokerId:
    """Return the leader to write: to name it again gives it a new epoch, if that is needed."""
    if outcome.leader != before.leader:
        return outcome.leader
    is_removed = not set(before.replicas) <= set(wanted.replicas)
    shrinks = isr is not None and not set(before.isr) <= set(isr)
    if is_removed or (shrinks and bumps_leader_epoch_on_isr_shrink(rules.level)):
        return before.leader
    return NO_LEADER_CHANGE


def _last_known_leader(
    before: PartitionImage, leader: BrokerId, isr: Replicas | None
) -> Replicas | None:
    """Return whom to remember when nobody is left that could lead; nobody once there is one.

    A partition without a leader may be from before ELR was on: then the only one in its ISR is
    remembered, or nobody could ever lead it again.
    """
    last = before.isr if before.leader == NO_LEADER else (before.leader,)
    if isr == () and len(last) == 1:
        return _different(last, before.last_known_elr)
    has_leader = leader >= 0 or (leader == NO_LEADER_CHANGE and before.leader != NO_LEADER)
    return () if has_leader and before.last_known_elr else None


def _recovery_field(before: PartitionImage, wanted: PartitionImage, outcome: _Outcome) -> int:
    if wanted.leader_recovery_state != before.leader_recovery_state:
        return wanted.leader_recovery_state
    is_recovering = before.leader_recovery_state == LeaderRecoveryState.RECOVERING
    if outcome.is_unclean and not is_recovering:
        return LeaderRecoveryState.RECOVERING
    return _NO_RECOVERY_CHANGE


def _different(after: Replicas, before: Replicas) -> Replicas | None:
    return None if after == before else after


def _without(replicas: Replicas, gone: BrokerId) -> Replicas:
    return tuple(replica for replica in replicas if replica != gone)
