"""What a node knows in each of its six states; the leader's is in :mod:`dohle.raft.leader`.

============  =====================================================================
Unattached    an epoch whose leader it cannot reach: looks for one, or waits for one
Prospective   asks the voters whether they would elect it (KIP-996), in the same epoch
Candidate     has begun an epoch and voted for itself: asks the voters for theirs
Leader        appends to the log, and decides what is committed
Follower      copies the log of the leader
Resigned      has led this epoch, will not again, and tells the voters
============  =====================================================================

A voter goes Unattached or Follower -> Prospective -> Candidate -> Leader -> Resigned ->
Unattached; a higher epoch makes it Follower or Unattached from anywhere. Observers are Unattached
or Follower. Within an epoch a vote and a leader, once known, never change (rule R12).
"""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.ids import BrokerId
from dohle.raft.effects import ReplyWithRecords
from dohle.raft.events import Received
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.raft.values import ElectionState, OffsetAndEpoch, ReplicaKey
from dohle.raft.voters import VoterSet, key_of


class Ballot:
    """The answers to one round of votes; the voters are those of its beginning (rule R34)."""

    def __init__(self, voters: VoterSet, own: ReplicaKey) -> None:
        self._answers: dict[BrokerId, bool] = {}
        self.voters = voters
        if voters.has(own):
            self._answers[own.id] = True

    def record(self, id: BrokerId, *, granted: bool) -> None:
        """Note an answer; that of a node without a vote does not count."""
        if self.voters.by_id(id) is not None:
            self._answers[id] = granted

    @property
    def granting(self) -> tuple[BrokerId, ...]:
        """Who has said yes."""
        return tuple(sorted(id for id, granted in self._answers.items() if granted))

    @property
    def missing(self) -> list[ReplicaKey]:
        """Who has not answered."""
        return [key_of(voter) for voter in self.voters.voters if voter.id not in self._answers]

    @property
    def is_won(self) -> bool:
        """Tell whether a majority said yes."""
        return len(self.granting) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """Tell whether a majority can no longer say yes."""
        return len(self.granting) + len(self.missing) < self.voters.majority


@dataclass(slots=True)
class Unattached:
    """No leader is known, or only its id."""

    epoch: int
    election_deadline_ms: float
    leader_id: BrokerId | None = None
    voted: ReplicaKey | None = None

    @property
    def election(self) -> ElectionState:
        """What is on the disk."""
        return ElectionState(self.epoch, self.leader_id, self.voted)


@dataclass(slots=True)
class Prospective:
    """Would a majority elect this node? Nobody's epoch changes by asking."""

    epoch: int
    election_deadline_ms: float
    ballot: Ballot
    leader_id: BrokerId | None = None
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    voted: ReplicaKey | None = None

    @property
    def election(self) -> ElectionState:
        """What is on the disk: what it was before."""
        return ElectionState(self.epoch, self.leader_id, self.voted)


@dataclass(slots=True)
class Candidate:
    """Elect this node."""

    epoch: int
    election_deadline_ms: float
    ballot: Ballot
    voted: ReplicaKey

    @property
    def election(self) -> ElectionState:
        """What is on the disk."""
        return ElectionState(self.epoch, None, self.voted)


@dataclass(slots=True)
class Download:
    """A snapshot that is being fetched, and how many bytes there are of it."""

    snapshot_id: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True)
class Follower:
    """The leader is known, and where it is."""

    epoch: int
    leader_id: BrokerId
    leader_endpoints: tuple[VoterEndpoint, ...]
    #: How long the leader may be silent: the fetch timeout, and a little more by chance.
    patience_ms: float
    fetch_deadline_ms: float
    #: When to tell the leader of changed listeners, or to ask it for membership.
    update_deadline_ms: float
    voted: ReplicaKey | None = None
    #: Whether the leader has answered a fetch: from then on no pre-vote is granted (rule R133).
    has_fetched: bool = False
    #: Whether this leader knows this voter's listeners (rule R109).
    has_told_listeners: bool = False
    #: The leader's high watermark, as of the last fetch.
    leader_high_watermark: int = -1
    download: Download | None = None

    @property
    def election(self) -> ElectionState:
        """What is on the disk; a vote that was cast in this epoch stays."""
        return ElectionState(self.epoch, self.leader_id, self.voted)

    def heard(self, now_ms: float) -> None:
        """Restart the fetch timer: the leader answers (rule R55)."""
        self.fetch_deadline_ms = now_ms + self.patience_ms
        self.has_fetched = True


@dataclass(slots=True)
class Resigned:
    """The epoch has no active leader any more: this node was it."""

    epoch: int
    leader_id: BrokerId
    election_deadline_ms: float
    successors: tuple[ReplicaKey, ...]
    #: The voters that have not confirmed that they know.
    unaware: tuple[ReplicaKey, ...]

    @property
    def election(self) -> ElectionState:
        """What is on the disk: the same as of the leader."""
        return ElectionState(self.epoch, self.leader_id)


@dataclass(frozen=True, slots=True)
class DelayedQuorumFetch:
    """A fetch that a leader answers when there is something new, or when its time is over."""

    received: Received
    #: The answer if nothing happens.
    reply: ReplyWithRecords
    deadline_ms: float


@dataclass(slots=True)
class PendingChange:
    """A voter that is being added or removed: at most one at a time (rules R105-R107)."""

    token: int
    deadline_ms: float
    is_removal: bool
    #: The new voter, as long as its ApiVersions are awaited.
    joining: Voter | None = None
    ack_when_committed: bool = True
    #: The offset of the voters record; unknown until the log has it.
    offset: int | None = None
