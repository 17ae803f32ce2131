"""The values that the quorum speaks of: replicas, positions in the log, what is on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import ZERO_UUID
from dohle.raft.membership import KRAFT_VERSIONS, Voter, VoterEndpoint

NOBODY = BrokerId(-1)

FETCH_MAX_BYTES = 8 * 1024 * 1024


class ReplicaKey(NamedTuple):
    """A node with one metadata directory; zero where the directory is not known."""

    id: BrokerId
    directory_id: Uuid = ZERO_UUID

    def fits(self, other: ReplicaKey) -> bool:
        """Tell whether this entry of a voter set, or this vote, means the other (rule R2)."""
        return self.id == other.id and self.directory_id in (ZERO_UUID, other.directory_id)


class OffsetAndEpoch(NamedTuple):
    """A position in the log; also the id of a snapshot that contains everything before it."""

    offset: int
    epoch: int

    def is_up_to_date_with(self, other: OffsetAndEpoch) -> bool:
        """Tell whether a log that ends here may lead one that ends there."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


#: What ``storage format`` leaves: it is never sent (rule R102).
BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)


class Node(NamedTuple):
    """Where a request goes. Bootstrap servers, whose ids nobody knows yet, have ids from -2 on."""

    id: BrokerId
    host: str
    port: int


class ElectionState(NamedTuple):
    """What ``quorum-state`` holds: what a node must not forget (rule R11)."""

    epoch: int = 0
    leader_id: BrokerId | None = None
    voted: ReplicaKey | None = None


class LeaderAndEpoch(NamedTuple):
    """Who leads an epoch, as far as the node knows."""

    leader_id: BrokerId | None
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """What a node knows of itself and of the quorum when it starts. Defaults as in Kafka."""

    key: ReplicaKey
    cluster_id: str
    #: Whether the node can be a voter; a broker never is.
    is_controller: bool
    #: The first of ``controller.listener.names``: where other nodes are reached. Upper case.
    default_listener: str = "CONTROLLER"
    #: Where this node is reached, by listener; empty on a broker.
    endpoints: tuple[VoterEndpoint, ...] = ()
    #: ``controller.quorum.voters``; they count while kraft.version is 0.
    static_voters: tuple[Voter, ...] = ()
    #: ``controller.quorum.bootstrap.servers`` as host and port.
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    shutdown_grace_ms: int = 5000
    auto_join: bool = False

    @property
    def own_entry(self) -> Voter:
        """The entry of this node in a voter set."""
        return Voter(self.key.id, self.key.directory_id, self.endpoints, KRAFT_VERSIONS)
