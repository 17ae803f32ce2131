"""One node of the quorum: what it knows, and how it goes from state to state.

A transition puts what is new of the epoch, the vote and the leader on the disk before anything
that depends on it: effects are executed in order. What makes a transition happen is decided
elsewhere: election, following, leading, and so on are functions on a Replica.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.seams import Rng
from dohle.protocol.messages.records.control import LeaderChangeMessage, LeaderChangeMessageVoter
from dohle.protocol.schema import Request
from dohle.raft.effects import (
    AppendControlBatch,
    DiscardSnapshot,
    Effect,
    HighWatermarkMoved,
    LeaderChanged,
    LeadershipLost,
    Persist,
    Send,
    SyncLog,
)
from dohle.raft.leader import Leader
from dohle.raft.log_view import LogView
from dohle.raft.membership import VoterEndpoint, membership_to_repeat
from dohle.raft.requests import Requests
from dohle.raft.states import (
    Ballot,
    Candidate,
    DelayedQuorumFetch,
    Follower,
    PendingChange,
    Prospective,
    Resigned,
    Unattached,
)
from dohle.raft.values import (
    ElectionState,
    LeaderAndEpoch,
    Node,
    OffsetAndEpoch,
    RaftConfig,
    ReplicaKey,
)
from dohle.raft.voters import VoterSet, key_of
from dohle.records.control import ControlRecordType

State = Unattached | Prospective | Candidate | Leader | Follower | Resigned

NEVER = float("inf")

#: By how much followers may differ in patience: more than an election takes.
_PATIENCE_SPREAD = 0.1


class Replica:
    """A voter, a controller that is not a voter, or a broker."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        rng: Rng,
        restored: ElectionState | None,
        now_ms: float,
    ) -> None:
        self.config = config
        self.log = log
        self.now_ms = now_ms
        self.effects: list[Effect] = []
        self.requests = Requests(config.request_timeout_ms, config.retry_backoff_ms)
        #: What a leader has not answered yet, by token, and the change of voters under way.
        self.delayed: dict[int, DelayedQuorumFetch] = {}
        self.change: PendingChange | None = None
        #: Whether delayed fetches have something to be told.
        self.has_news = False
        self.high_watermark: int | None = None
        #: Everything below is on the disk.
        self.synced_offset = log.end_offset
        #: A snapshot that the driver is putting in place of the log.
        self.installing: OffsetAndEpoch | None = None
        #: An effect will change the log: nothing is decided before LogChanged.
        self.is_log_changing = False
        self.shutdown_deadline_ms: float | None = None
        self.has_shut_down = False
        #: During a shutdown: the voters that could not be connected to when they were asked last.
        self.unreachable: set[BrokerId] = set()
        self._syncing: SyncLog | None = None
        self._rng = rng
        self._persisted = restored
        self._announced = LeaderAndEpoch(None, -1)
        self.state: State = self._restored(restored or ElectionState())
        self.persist()
        self._announce_leader()

    def _restored(self, found: ElectionState) -> State:
        """Return the state to start in: never one in which a promise is broken (rule R13)."""
        election = self.random_election_deadline()
        last_epoch = self.log.last_epoch
        if found.epoch < last_epoch:
            return Unattached(last_epoch, election)
        if found.leader_id == self.key.id:
            others = tuple(key for key in map(key_of, self.voters.voters) if key.id != self.key.id)
            return Resigned(found.epoch, self.key.id, election, (), others)
        endpoints = self.voters.endpoints(found.leader_id)
        if found.leader_id is not None and endpoints:
            return self._follower(found.epoch, found.leader_id, endpoints, found.voted)
        is_candidate = found.voted is not None and found.voted.fits(self.key) and self.is_voter
        # Once the epoch has a leader, nobody votes for another: that election is over.
        if is_candidate and found.leader_id is None:
            return Candidate(found.epoch, election, Ballot(self.voters, self.key), self.key)
        return Unattached(found.epoch, election, found.leader_id, found.voted)

    # What it knows

    @property
    def key(self) -> ReplicaKey:
        """The node and its directory."""
        return self.config.key

    @property
    def voters(self) -> VoterSet:
        """Who votes, by the log's end, committed or not (rules R2, R100)."""
        membership = self.log.memberships.latest
        return VoterSet(
            membership.voters if membership.kraft_version else self.config.static_voters
        )

    @property
    def is_voter(self) -> bool:
        """Whether this node votes."""
        return self.config.is_controller and self.voters.has(self.key)

    @property
    def may_lead(self) -> bool:
        """Whether this node takes part in elections as a candidate.

        One that is removed still does while the removal may be open: nobody else need have the
        record, and then nobody else can win (Ongaro's dissertation, 4.2.2). It does not count.
        """
        history, watermark = self.log.memberships, self.high_watermark
        if self.is_voter or not self.config.is_controller or not history.latest.kraft_version:
            return self.is_voter
        is_open = watermark is None or history.latest_offset >= watermark
        return is_open and VoterSet(history.at(history.latest_offset - 1).voters).has(self.key)

    @property
    def epoch(self) -> int:
        """The highest epoch it has seen."""
        return self.state.epoch

    @property
    def leader_id(self) -> BrokerId | None:
        """Who leads the epoch."""
        return self.state.election.leader_id

    @property
    def leader_endpoints(self) -> tuple[VoterEndpoint, ...]:
        """Where the leader is reached, as far as it is known."""
        match self.state:
            case Follower() | Prospective():
                return self.state.leader_endpoints
            case Leader() | Resigned():
                return self.config.endpoints
        return ()

    @property
    def log_end(self) -> OffsetAndEpoch:
        """The end of the log, as votes compare it (rule R75)."""
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    @property
    def durable_offset(self) -> int:
        """How far the log is on the disk."""
        return min(self.synced_offset, self.log.end_offset)

    def leader_error(self, epoch: int) -> ErrorCode:
        """Return why this node does not serve a replica that believes in an epoch (rule R48)."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self.state, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.shutdown_deadline_ms is not None:
            return ErrorCode.BROKER_NOT_AVAILABLE
        return ErrorCode.NONE

    def random_election_deadline(self) -> float:
        """Draw when an election timer that begins now is over."""
        timeout_ms = self.config.election_timeout_ms
        return self.now_ms + timeout_ms + self._rng.random() * timeout_ms

    def shuffled(self, nodes: list[Node]) -> list[Node]:
        """Return the nodes in random order."""
        self._rng.shuffle(nodes)
        return nodes

    # What it does

    def send(self, node: Node, request: Request) -> bool:
        """Send a request unless the node has to answer another first; return whether it went."""
        if not self.requests.is_ready(node.id, self.now_ms):
            return False
        correlation_id = self.requests.begin(node, request, self.now_ms)
        self.effects.append(Send(correlation_id, node, request))
        return True

    def change_log(self, effect: Effect) -> None:
        """Ask for a change of the log; the next event is LogChanged."""
        self.effects.append(effect)
        self.is_log_changing = True

    def sync_log(self) -> None:
        """Have a controller's log synced to its end, if that is not under way (rule R60)."""
        end_offset = self.log.end_offset
        is_under_way = self._syncing is not None and self._syncing.epoch == self.epoch
        if is_under_way or not self.config.is_controller:
            return
        if self.synced_offset < end_offset:
            self._syncing = SyncLog(end_offset, self.epoch)
            self.effects.append(self._syncing)

    def synced(self, end_offset: int, epoch: int) -> None:
        """Note what is on the disk; in an older epoch the log may have been cut since."""
        if self._syncing == SyncLog(end_offset, epoch) and epoch == self.epoch:
            self._syncing = None
            self.synced_offset = max(self.synced_offset, end_offset)

    def commit(self, offset: int) -> None:
        """Hand what is committed to the state machine."""
        if self.high_watermark is None or offset > self.high_watermark:
            self.high_watermark = offset
            self.effects.append(HighWatermarkMoved(offset))

    # Transitions

    def become_unattached(self, epoch: int) -> None:
        """Enter an epoch whose leader is not known (rules R20, R21, R32)."""
        remaining = self.random_election_deadline()
        match self.state:
            case Unattached() | Candidate() | Resigned():
                remaining = self.state.election_deadline_ms
            case Prospective() if not self.state.ballot.is_lost:
                remaining = self.state.election_deadline_ms
        self._enter(Unattached(epoch, remaining))

    def become_prospective(self) -> None:
        """Ask whether an election would succeed, in the same epoch (rules R22, R23, R30)."""
        old = self.state
        assert not isinstance(old, Leader), "a leader resigns first"
        ballot = Ballot(self.voters, self.key)
        deadline = self.random_election_deadline()
        # Nobody follows itself.
        endpoints = () if isinstance(old, Resigned) else self.leader_endpoints
        voted = old.election.voted
        state = Prospective(self.epoch, deadline, ballot, self.leader_id, endpoints, voted)
        self._enter(state)
        self.count_votes()

    def become_candidate(self) -> None:
        """Begin an epoch with a vote for itself (rule R24)."""
        ballot = Ballot(self.voters, self.key)
        deadline = self.random_election_deadline()
        self._enter(Candidate(self.epoch + 1, deadline, ballot, self.key))
        self.count_votes()

    def count_votes(self) -> None:
        """Go on if a majority is for it, or give a pre-vote up (rules R24, R26, R28)."""
        match self.state:
            case Prospective(ballot=ballot) if ballot.is_won:
                self.become_candidate()
            case Prospective(ballot=ballot) if ballot.is_lost:
                self.give_up_pre_vote()
            case Candidate(ballot=ballot) if ballot.is_won:
                self.become_leader(ballot.granting)

    def give_up_pre_vote(self) -> None:
        """Go back to the leader that it knew, or look for one; a vote is kept (rule R26)."""
        old = self.state
        assert isinstance(old, Prospective)
        if old.leader_id is not None and old.leader_endpoints:
            self.become_follower(old.epoch, old.leader_id, old.leader_endpoints)
        else:
            deadline = self.random_election_deadline()
            self._enter(Unattached(old.epoch, deadline, old.leader_id, old.voted))

    def become_leader(self, granting: tuple[BrokerId, ...]) -> None:
        """Begin the epoch in the log, and tell the voters (rules R28, R72, R73)."""
        leader = Leader(
            self.epoch,
            self.key,
            self.log.end_offset,
            granting,
            check_quorum_deadline_ms=self.now_ms + self.check_quorum_ms,
            begin_deadline_ms=self.now_ms,
        )
        leader.take_voters(self.voters)
        self._enter(leader)
        self.change_log(AppendControlBatch(self.epoch, self._epoch_records(leader)))

    @property
    def check_quorum_ms(self) -> float:
        """How long a leader goes on without a majority (rule R74)."""
        return 1.5 * self.config.fetch_timeout_ms

    def _epoch_records(self, leader: Leader) -> tuple[tuple[ControlRecordType, bytes], ...]:
        message = LeaderChangeMessage(
            leader_id=self.key.id,
            voters=tuple(LeaderChangeMessageVoter(voter_id=id) for id in self.voters.ids),
            granting_voters=tuple(LeaderChangeMessageVoter(voter_id=id) for id in leader.granting),
        )
        records = [(ControlRecordType.LEADER_CHANGE, message.encode(0))]
        repeated = membership_to_repeat(self.log.memberships, self.config.own_entry)
        if repeated is not None:
            records += repeated.control_records()
        return tuple(records)

    def become_follower(
        self, epoch: int, leader_id: BrokerId, endpoints: tuple[VoterEndpoint, ...]
    ) -> None:
        """Follow a leader; a vote cast in this epoch is kept (rule R27)."""
        voted = self.state.election.voted if epoch == self.epoch else None
        self._enter(self._follower(epoch, leader_id, endpoints, voted))

    def _follower(
        self,
        epoch: int,
        leader_id: BrokerId,
        endpoints: tuple[VoterEndpoint, ...],
        voted: ReplicaKey | None,
    ) -> Follower:
        # A leader answers all followers at once when something is committed. If they missed it at
        # the same moment, too, they would stand against each other, and nobody would win.
        timeout = patience = float(self.config.fetch_timeout_ms)
        if self.is_voter:
            patience += timeout * _PATIENCE_SPREAD * self._rng.random()
        deadline, update = self.now_ms + patience, self.now_ms + timeout
        return Follower(epoch, leader_id, endpoints, patience, deadline, update, voted)

    def become_resigned(self) -> None:
        """Stop leading; the epoch is over as far as this node is concerned (rule R31)."""
        assert isinstance(self.state, Leader)
        successors = self.state.successors()
        deadline = self.random_election_deadline()
        self._enter(Resigned(self.epoch, self.key.id, deadline, successors, successors))

    def learn(
        self, leader_id: BrokerId | None, epoch: int, endpoints: tuple[VoterEndpoint, ...]
    ) -> bool:
        """Follow what another node says of an epoch (rules R20, R27, R33); return if that was news.

        A second leader of an epoch, or this node where it does not lead, is a lie: not believed.
        """
        if epoch < self.epoch or leader_id == self.key.id:
            return False
        if leader_id is None or not endpoints:
            if epoch == self.epoch:
                return False
            self.become_unattached(epoch)
            return True
        if epoch == self.epoch and self.leader_id is not None:
            has_more = len(endpoints) > len(self.leader_endpoints)
            if leader_id != self.leader_id or not has_more:
                return False
        self.become_follower(epoch, leader_id, endpoints)
        return True

    def _enter(self, state: State) -> None:
        old, self.state = self.state, state
        self.requests.reset()
        self.persist()
        if isinstance(old, Follower) and old.download is not None:
            self.effects.append(DiscardSnapshot(old.download.snapshot_id))
        if isinstance(old, Leader):
            self.effects.append(LeadershipLost(old.epoch))
        self._announce_leader()

    def persist(self) -> None:
        """Put the epoch, the vote and the leader on the disk, if they have changed."""
        election = self.state.election
        if election != self._persisted:
            self._persisted = election
            self.effects.append(Persist(election))

    def _announce_leader(self) -> None:
        state, leader_id, start = self.state, self.leader_id, None
        if isinstance(state, Leader):
            start = state.epoch_start_offset
        elif leader_id == self.key.id:
            leader_id = None
        known = LeaderAndEpoch(leader_id, self.epoch)
        # A resignation is not announced: the next epoch tells that this one is over.
        if known != self._announced and not isinstance(state, Resigned):
            self._announced = known
            self.effects.append(LeaderChanged(known.leader_id, known.epoch, start))
