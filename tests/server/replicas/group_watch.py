"""What must hold of groups: in what coordinators keep, and in what members were told.

Looked at when something strikes, and at the end: a look takes a millisecond. Who coordinates what
is looked at all the time, at one event of 64: rule H1, one broker for a partition of the groups' or
the transactions' topic in one of its leader epochs.
"""

from __future__ import annotations

from typing import Any

from dohle.core.ids import BrokerId, Uuid
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from dohle.groups.group import Group
from dohle.server.coordinators.runtime import CoordinatorRuntime
from dohle.testing.simulation.machine import Machine
from tests.server.replicas.simulated_cluster import SimulatedCluster

_SETTLED = ("Stable", "Empty", "Dead")
#: A coordinator that nobody has deposed stays for longer than that.
_EVENTS_UNSEEN = 64


class GroupWatch:
    """Watches the coordinators of a cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        #: By group: the leader epoch of its coordinator, and its own epoch or generation.
        self._epochs: dict[str, tuple[int, int]] = {}
        #: By topic, partition and its leader epoch: who has coordinated it.
        self._coordinators: dict[tuple[str, int, int], BrokerId] = {}
        self._events = 0
        self.problems: list[str] = []

    def after(self, machine: Machine) -> None:
        """Take note of an event, and look at coordinators now and then."""
        self._events += 1
        if self._events % _EVENTS_UNSEEN == 0:
            self.note_coordinators()

    def note_coordinators(self) -> None:
        """Look at who coordinates which partition."""
        for node_id, node in self._cluster.working.items():
            self._note("groups", node_id, node.broker.groups)
            self._note("transactions", node_id, node.broker.transactions)

    def _note(self, kind: str, node_id: BrokerId, runtime: CoordinatorRuntime[Any]) -> None:
        for index, _ in runtime.active():
            epoch = runtime.shard(index).leader_epoch
            known = self._coordinators.setdefault((kind, index, epoch), node_id)
            if known != node_id:
                text = f"{known} and {node_id} coordinate {kind} of partition {index}"
                self.problems.append(f"H1 {text} in leader epoch {epoch}")

    def look(self) -> None:
        """Look at all groups."""
        self.note_coordinators()
        for node_id, node in sorted(self._cluster.working.items()):
            runtime = node.broker.groups
            for index, machine in runtime.active():
                shard = runtime.shard(index)
                if not shard.is_settled:
                    # It may be another's by now, and what it has seen may be lost.
                    continue
                for group in list(machine.context.groups.values()):
                    where = f"{group.group_id} on node {node_id}"
                    if isinstance(group, ConsumerGroup):
                        self._note_epoch(where, group, shard.leader_epoch, group.group_epoch)
                        self._look_at(where, group)
                    elif isinstance(group, ClassicGroup) and group.state is ClassicState.STABLE:
                        # Before its members are told, a generation is not in the log.
                        self._note_epoch(where, group, shard.leader_epoch, group.generation)
                        if not group.members:
                            self.problems.append(f"G4 {where} is stable without members")

    def are_settled(self) -> bool:
        """Tell whether every group is stable, or has no members."""
        return all(
            group.state_name in _SETTLED
            for node in self._cluster.working.values()
            for _, machine in node.broker.groups.active()
            for group in machine.context.groups.values()
        )

    def _note_epoch(self, where: str, group: Group, leader_epoch: int, epoch: int) -> None:
        known = self._epochs.get(group.group_id, (-1, -1))
        if leader_epoch < known[0]:
            return
        if epoch < known[1]:
            self.problems.append(f"G8 {where}: epoch {epoch} after {known[1]}")
        self._epochs[group.group_id] = (leader_epoch, epoch)

    def _look_at(self, where: str, group: ConsumerGroup) -> None:
        owners: dict[tuple[Uuid, int], str] = {}
        targets: dict[tuple[Uuid, int], str] = {}
        for member in group.members.values():
            for held in (member.assigned, member.pending_revocation):
                for topic_id, partitions in held.items():
                    for number in partitions:
                        other = owners.setdefault((topic_id, number), member.member_id)
                        if other != member.member_id:
                            text = f"{number} is of {other} and {member.member_id}"
                            self.problems.append(f"G1 {where}: {text}")
            if member.member_epoch > group.group_epoch:
                self.problems.append(f"G8 {where}: {member.member_id} is ahead of its group")
        for member_id, assignment in group.target.items():
            for topic_id, partitions in assignment.items():
                for number in partitions:
                    if targets.setdefault((topic_id, number), member_id) != member_id:
                        self.problems.append(f"G2 {where}: {number} is assigned twice")
        if group.state is ConsumerGroupState.STABLE and owners != targets:
            self.problems.append(f"G4 {where}: stable, but {owners} is not {targets}")
        for member in group.members.values():
            if member.member_epoch != group.target_epoch:
                continue
            for topic_id, partitions in member.assigned.items():
                for number in partitions:
                    if targets.get((topic_id, number), member.member_id) != member.member_id:
                        text = f"{member.member_id} has {number}, which is another's"
                        self.problems.append(f"G3 {where}: {text}")
