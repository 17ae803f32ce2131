"""The voter set: who elects a leader, and whose logs count (rule R2)."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.ids import BrokerId
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.raft.values import Node, ReplicaKey


def key_of(voter: Voter) -> ReplicaKey:
    """Return the key of a voter's entry."""
    return ReplicaKey(voter.id, voter.directory_id)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters as the log's end, committed or not, or the configuration says."""

    voters: tuple[Voter, ...]

    @property
    def ids(self) -> tuple[BrokerId, ...]:
        """The voters' ids in ascending order."""
        return tuple(sorted(voter.id for voter in self.voters))

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    def by_id(self, id: BrokerId | None) -> Voter | None:
        """Return the entry with this id."""
        return next((voter for voter in self.voters if voter.id == id), None)

    def has(self, key: ReplicaKey) -> bool:
        """Tell whether the replica is a voter."""
        return any(key_of(voter).fits(key) for voter in self.voters)

    def is_only(self, key: ReplicaKey) -> bool:
        """Tell whether the replica is the only voter."""
        return len(self.voters) == 1 and self.has(key)

    def endpoints(self, id: BrokerId | None) -> tuple[VoterEndpoint, ...]:
        """Return where a voter is reached; nothing for one that is not in the set."""
        voter = self.by_id(id)
        return () if voter is None else voter.endpoints


def endpoint_at(endpoints: tuple[VoterEndpoint, ...], listener: str) -> VoterEndpoint | None:
    """Return the endpoint of a listener; names are compared in upper case (rule R4)."""
    wanted = listener.upper()
    return next((each for each in endpoints if each.listener.upper() == wanted), None)


def node_at(id: BrokerId, endpoints: tuple[VoterEndpoint, ...], listener: str) -> Node | None:
    """Return where to send to a node."""
    found = endpoint_at(endpoints, listener)
    return None if found is None else Node(id, found.host, found.port)
