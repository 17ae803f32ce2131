"""What a leader knows of the replicas, and what follows: commits and whether it still leads."""

from __future__ import annotations

from dataclasses import dataclass, field

from dohle.core.ids import BrokerId
from dohle.raft.membership import Voter
from dohle.raft.values import ElectionState, ReplicaKey
from dohle.raft.voters import VoterSet, key_of

#: An observer that has not fetched for this long is forgotten.
OBSERVER_SESSION_MS = 300_000
#: Observers beyond this number are served, but not listed.
OBSERVERS_MAX = 10_000


def _known(offset: int | None) -> int:
    return -1 if offset is None else offset


@dataclass(slots=True)
class ReplicaProgress:
    """How far a replica has fetched (rule R70). Times are None before the first fetch."""

    key: ReplicaKey
    end_offset: int | None = None
    last_fetch_ms: float | None = None
    last_caught_up_ms: float | None = None
    #: The leader's end at that fetch.
    leader_end_offset: int = -1

    def fetched(self, offset: int, leader_end_offset: int, now_ms: float) -> None:
        """Note a valid fetch: the replica has everything below the offset."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and offset >= self.leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.last_fetch_ms = now_ms
        self.leader_end_offset = leader_end_offset
        self.end_offset = offset


@dataclass(slots=True)
class Leader:
    """The epoch that this node leads."""

    epoch: int
    key: ReplicaKey
    epoch_start_offset: int
    granting: tuple[BrokerId, ...]
    check_quorum_deadline_ms: float
    begin_deadline_ms: float
    voters: dict[BrokerId, ReplicaProgress] = field(default_factory=dict)
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    #: Unknown until a record of this epoch is committed, whatever was known before (rule R72).
    high_watermark: int | None = None
    #: The voters that have fetched since the check-quorum timer was restarted.
    fetched: set[BrokerId] = field(default_factory=set)
    #: At kraft.version 0: what voters have told of themselves (rule R108).
    told: dict[BrokerId, Voter] = field(default_factory=dict)

    @property
    def election(self) -> ElectionState:
        """What is on the disk."""
        return ElectionState(self.epoch, self.key.id)

    @property
    def leader_id(self) -> BrokerId:
        """The node itself."""
        return self.key.id

    def take_voters(self, voters: VoterSet) -> None:
        """Keep what is known of each replica when the voter set changes."""
        known = {**self.observers, **{each.key: each for each in self.voters.values()}}
        self.voters = {}
        for key in map(key_of, voters.voters):
            # An entry without a directory becomes one with it when the log takes the voters over.
            old = next((each for each in known if each in (key, ReplicaKey(key.id))), None)
            progress = ReplicaProgress(key) if old is None else known.pop(old)
            progress.key = key
            self.voters[key.id] = progress
        self.observers = known
        self.observers.pop(self.key, None)
        self.fetched &= self.voters.keys()

    def progress_of(self, key: ReplicaKey) -> ReplicaProgress:
        """Return the entry of a voter, or else of an observer."""
        voter = self.voters.get(key.id)
        if voter is not None and voter.key.fits(key):
            return voter
        if len(self.observers) >= OBSERVERS_MAX and key not in self.observers:
            return ReplicaProgress(key)
        return self.observers.setdefault(key, ReplicaProgress(key))

    def is_voter(self, key: ReplicaKey) -> bool:
        """Tell whether a replica counts."""
        voter = self.voters.get(key.id)
        return voter is not None and voter.key.fits(key)

    def forget_observers(self, now_ms: float) -> None:
        """Drop the observers that have gone."""
        self.observers = {
            key: each
            for key, each in self.observers.items()
            if each.last_fetch_ms is not None and each.last_fetch_ms > now_ms - OBSERVER_SESSION_MS
        }

    def majority_offset(self, own_offset: int) -> int:
        """Return what a majority of the voters has, -1 if unknown.

        This node counts only if it is one of them, and only as far as its disk has it (rule R71).
        """
        ends = [
            own_offset if each.key.fits(self.key) else each.end_offset
            for each in self.voters.values()
        ]
        ranked = sorted(map(_known, ends), reverse=True)
        return ranked[len(ranked) // 2] if ranked else _known(None)

    def advance(self, own_offset: int) -> bool:
        """Move the high watermark to what a majority has; return whether it moved.

        Only a record of this epoch may be committed by counting: the LeaderChange record is at the
        epoch's start offset. A smaller result, after a change of voters, is ignored.
        """
        offset = self.majority_offset(own_offset)
        if offset <= max(self.epoch_start_offset, _known(self.high_watermark)):
            return False
        self.high_watermark = offset
        return True

    def note_contact(self, key: ReplicaKey, now_ms: float, timeout_ms: float) -> None:
        """Restart the check-quorum timer once a majority has fetched since (rule R74)."""
        if not self.is_voter(key):
            return
        self.fetched.add(key.id)
        if len(self.fetched) >= self.others_needed:
            self.fetched.clear()
            self.check_quorum_deadline_ms = now_ms + timeout_ms

    @property
    def others_needed(self) -> int:
        """How many other voters make a majority with this node; 0 if it is the only one."""
        own = 1 if self.is_voter(self.key) else 0
        return len(self.voters) // 2 + 1 - own

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters, those with the longest logs first (rule R45)."""
        others = [each for each in self.voters.values() if not each.key.fits(self.key)]
        others.sort(key=lambda each: (-_known(each.end_offset), each.key))
        return tuple(each.key for each in others)
