"""A partition as the metadata log describes it, and how its records change it.

A PartitionRecord holds all of it; a PartitionChangeRecord holds the differences. Every change
increments the partition epoch, and one that names a leader, even the same one, the leader epoch
too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.metadata_version import (
    partition_record_version,
    supports_directories,
    supports_elr,
)
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord, PartitionRecord

NO_LEADER = BrokerId(-1)
#: In a PartitionChangeRecord: the leader stays, and so does its epoch.
NO_LEADER_CHANGE = BrokerId(-2)
_NO_RECOVERY_CHANGE = -1

#: The directory of a replica that is in no known directory: unknown, because the log is from before
#: directories had ids; not yet chosen by the broker; in a directory that the broker no longer has.
DIRECTORY_MIGRATING = ZERO_UUID
DIRECTORY_UNASSIGNED = Uuid(bytes(15) + b"\x01")
DIRECTORY_LOST = Uuid(bytes(15) + b"\x02")


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected uncleanly and has yet to recover (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """The replicas of a partition and its leader."""

    replicas: tuple[BrokerId, ...]
    #: One for each replica, in the same order.
    directories: tuple[Uuid, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED

    def directory_of(self, broker_id: int) -> Uuid:
        """Return the directory of the broker's replica; ValueError if it has none."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        raise ValueError(f"broker {broker_id} is not among the replicas {self.replicas}")

    def changed_by(self, record: PartitionChangeRecord) -> PartitionImage:
        """Return the partition after a change."""
        replicas = self.replicas if record.replicas is None else record.replicas
        directories = self.directories if record.directories is None else record.directories
        leads_anew = record.leader != NO_LEADER_CHANGE
        recovery = record.leader_recovery_state
        return PartitionImage(
            replicas=replicas,
            directories=_one_for_each(directories, replicas),
            isr=self.isr if record.isr is None else record.isr,
            leader=record.leader if leads_anew else self.leader,
            leader_epoch=self.leader_epoch + leads_anew,
            partition_epoch=self.partition_epoch + 1,
            removing_replicas=_changed(self.removing_replicas, record.removing_replicas),
            adding_replicas=_changed(self.adding_replicas, record.adding_replicas),
            elr=_changed(self.elr, record.eligible_leader_replicas),
            last_known_elr=_changed(self.last_known_elr, record.last_known_elr),
            leader_recovery_state=(
                self.leader_recovery_state
                if recovery == _NO_RECOVERY_CHANGE
                else LeaderRecoveryState(recovery)
            ),
        )

    def to_record(self, topic_id: Uuid, index: int, level: int) -> VersionedRecord:
        """Return the record that holds all of this partition, at a level of metadata.version."""
        return VersionedRecord(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=self.replicas,
                isr=self.isr,
                removing_replicas=self.removing_replicas,
                adding_replicas=self.adding_replicas,
                leader=self.leader,
                leader_recovery_state=self.leader_recovery_state,
                leader_epoch=self.leader_epoch,
                partition_epoch=self.partition_epoch,
                directories=self.directories if supports_directories(level) else (),
                eligible_leader_replicas=(self.elr or None) if supports_elr(level) else None,
                last_known_elr=(self.last_known_elr or None) if supports_elr(level) else None,
            ),
            partition_record_version(level),
        )


def partition_from_record(record: PartitionRecord) -> PartitionImage:
    """Return the partition of a record."""
    replicas = record.replicas
    return PartitionImage(
        replicas=replicas,
        directories=_one_for_each(record.directories, replicas),
        # In almost all partitions all replicas are in sync: then the two share one tuple.
        isr=replicas if record.isr == replicas else tuple(map(BrokerId, record.isr)),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        elr=record.eligible_leader_replicas or (),
        last_known_elr=record.last_known_elr or (),
        leader_recovery_state=LeaderRecoveryState(record.leader_recovery_state),
    )


def is_directory_online(directory: Uuid, online: tuple[Uuid, ...]) -> bool:
    """Tell whether a broker with these directories can have a replica there.

    A broker that listed no directories is from before they had ids: all of its are online.
    """
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    return directory != DIRECTORY_LOST and (not online or directory in online)


def _changed(
    before: tuple[BrokerId, ...], change: tuple[BrokerId, ...] | None
) -> tuple[BrokerId, ...]:
    return before if change is None else change


def _one_for_each(
    directories: tuple[Uuid, ...], replicas: tuple[BrokerId, ...]
) -> tuple[Uuid, ...]:
    if all(directory == DIRECTORY_MIGRATING for directory in directories):
        return (DIRECTORY_MIGRATING,) * len(replicas)
    if len(directories) != len(replicas):
        raise ValueError(f"{len(directories)} directories for {len(replicas)} replicas")
    return directories
