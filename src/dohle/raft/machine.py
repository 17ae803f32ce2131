"""The machine: one event in, what follows from it out.

``step`` lets the event change what the node knows, then polls: whatever the state wants done at
this time is done, until nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.seams import Rng
from dohle.protocol.messages import begin_quorum_epoch as begin
from dohle.protocol.messages import end_quorum_epoch as end
from dohle.protocol.messages import fetch, fetch_snapshot, update_raft_voter, vote
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.protocol.schema import Request, Response
from dohle.raft import changes, election, epochs, events, following, joining, serving, snapshots
from dohle.raft.effects import Effect, Reply, ShutdownDone
from dohle.raft.leader import Leader
from dohle.raft.log_view import LogView
from dohle.raft.replica import NEVER, Replica
from dohle.raft.requests import InFlight
from dohle.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from dohle.raft.values import ElectionState, LeaderAndEpoch, Node, RaftConfig
from dohle.raft.voters import VoterSet
from dohle.raft.wire import Answer, only_partition, read_response, refusal, unknown_partition

#: With timeouts of 0 ms states would follow each other without end.
_TRANSITIONS_MAX = 10

_CHANGES = (AddRaftVoterRequest, RemoveRaftVoterRequest, update_raft_voter.UpdateRaftVoterRequest)

_RECEIVERS: Mapping[type[Request], Callable[[Replica, events.Received, Any], None]] = {
    vote.VoteRequest: election.receive_vote,
    begin.BeginQuorumEpochRequest: epochs.receive_begin,
    end.EndQuorumEpochRequest: epochs.receive_end,
    fetch.FetchRequest: serving.receive_fetch,
    fetch_snapshot.FetchSnapshotRequest: snapshots.receive_fetch_snapshot,
}

#: What to do with a response that passed the common checks; returns whether it helped.
_ANSWERED: Mapping[type[Request], Callable[[Replica, Node, Any], bool]] = {
    vote.VoteRequest: election.vote_answered,
    begin.BeginQuorumEpochRequest: lambda replica, node, partition: True,
    end.EndQuorumEpochRequest: epochs.end_answered,
    fetch.FetchRequest: following.fetch_answered,
    fetch_snapshot.FetchSnapshotRequest: snapshots.snapshot_answered,
    update_raft_voter.UpdateRaftVoterRequest: joining.update_answered,
}


class Raft:
    """One node of the quorum."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogView,
        rng: Rng,
        restored: ElectionState | None,
        now_ms: float,
    ) -> None:
        self._replica = replica = Replica(config, log, rng, restored, now_ms)
        # The only voter does not wait for anybody (rule R15).
        if replica.is_voter and replica.voters.is_only(replica.key):
            if isinstance(replica.state, Candidate):
                replica.count_votes()
            else:
                replica.become_prospective()

    # What it knows

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who leads, as far as the node knows; one that has resigned is still named."""
        return LeaderAndEpoch(self._replica.leader_id, self._replica.epoch)

    @property
    def is_leader(self) -> bool:
        """Whether this node leads now: it may append."""
        return isinstance(self._replica.state, Leader)

    @property
    def high_watermark(self) -> int | None:
        """Everything below is committed; None while that is not known."""
        return self._replica.high_watermark

    @property
    def voters(self) -> VoterSet:
        """Who votes, by the log's end."""
        return self._replica.voters

    @property
    def replica(self) -> Replica:
        """All that it knows, to be read."""
        return self._replica

    @property
    def deadline_ms(self) -> float | None:
        """When it wants a Tick at the latest; None: never."""
        replica = self._replica
        times = [replica.requests.deadline_ms]
        if replica.shutdown_deadline_ms is not None and not replica.has_shut_down:
            times.append(replica.shutdown_deadline_ms)
        match replica.state:
            case Unattached() | Resigned() as state:
                if replica.shutdown_deadline_ms is None and self._wants_election(state):
                    times.append(state.election_deadline_ms)
            case Prospective() | Candidate() as state:
                times.append(state.election_deadline_ms)
            case Follower() as state:
                if replica.may_lead:
                    times.append(state.fetch_deadline_ms)
            case Leader() as state:
                times.append(state.begin_deadline_ms)
                times.append(state.check_quorum_deadline_ms if state.others_needed else NEVER)
                times.extend(each.deadline_ms for each in replica.delayed.values())
                if replica.change is not None:
                    times.append(replica.change.deadline_ms)
        soonest = min(times)
        return None if soonest == NEVER else soonest

    def _wants_election(self, state: Unattached | Resigned) -> bool:
        return isinstance(state, Resigned) or self._replica.may_lead

    # What happens

    def step(self, event: events.Event, now_ms: float) -> list[Effect]:
        """Take an event, and return what is to be done, in this order."""
        replica = self._replica
        replica.now_ms = now_ms
        self._handle(event)
        self._poll()
        effects, replica.effects = replica.effects, []
        return effects

    def _handle(self, event: events.Event) -> None:
        replica = self._replica
        match event:
            case events.Received():
                self._receive(event)
            case events.Abandoned(token):
                replica.delayed.pop(token, None)
            case events.Answered(correlation_id, response):
                sent = replica.requests.take(correlation_id)
                if sent is not None:
                    self._answered(sent, response)
            case events.Unanswered(correlation_id, error):
                sent = replica.requests.take(correlation_id)
                if sent is not None:
                    self._unanswered(sent, error)
            case events.LogChanged():
                self._log_changed()
            case events.Synced(end_offset, epoch):
                replica.synced(end_offset, epoch)
                if isinstance(replica.state, Leader):
                    serving.advance(replica, replica.state)
            case events.SnapshotInstalled(snapshot_id):
                snapshots.installed(replica, snapshot_id)
            case events.Resign(epoch):
                if isinstance(replica.state, Leader) and epoch == replica.epoch:
                    replica.become_resigned()
            case events.UpgradeKraftVersion():
                changes.upgrade(replica, event)
            case events.Shutdown():
                self._shut_down()

    def _poll(self) -> None:
        replica = self._replica
        replica.requests.expire(replica.now_ms)
        for _ in range(_TRANSITIONS_MAX):
            if replica.is_log_changing:
                break
            replica.sync_log()
            state = replica.state
            match state:
                case Unattached():
                    following.poll_unattached(replica, state)
                case Prospective():
                    election.poll_prospective(replica, state)
                case Candidate():
                    election.poll_candidate(replica, state)
                case Follower():
                    following.poll_follower(replica, state)
                case Leader():
                    changes.poll_change(replica, state)
                    serving.poll_leader(replica, state)
                case Resigned():
                    epochs.poll_resigned(replica, state)
            if replica.state is state:
                break
        if not isinstance(replica.state, Leader):
            serving.fail_delayed(replica)
            changes.fail_change(replica)
        self._poll_shutdown()

    def _log_changed(self) -> None:
        replica = self._replica
        replica.is_log_changing = False
        match replica.state:
            case Leader() as leader:
                serving.log_changed(replica, leader)
            case Follower() as follower:
                following.log_changed(replica, follower)

    # Requests

    def _receive(self, received: events.Received) -> None:
        replica = self._replica
        request: Any = received.request
        if isinstance(request, _CHANGES):
            changes.receive_change(replica, received)
            return
        asked = only_partition(request)
        response: Response | None = None
        if request.cluster_id not in (None, replica.config.cluster_id):
            response = refusal(request, ErrorCode.INCONSISTENT_CLUSTER_ID)
        elif asked is None:
            response = unknown_partition(request)
        if response is not None:
            replica.effects.append(Reply(received.token, response))
        else:
            _RECEIVERS[type(request)](replica, received, asked)

    # Responses

    def _answered(self, sent: InFlight, response: Response) -> None:
        replica, node = self._replica, sent.node
        replica.unreachable.discard(node.id)
        if isinstance(response, ApiVersionsResponse):
            changes.versions_answered(replica, node.id, response)
        elif isinstance(sent.request, AddRaftVoterRequest | RemoveRaftVoterRequest):
            pass  # It is asked again in the next period, until the log says that it votes.
        else:
            before = replica.state
            helped = self._take_in(sent, read_response(response, replica.config.default_listener))
            if not helped and replica.state is before:
                replica.requests.back_off(node.id, replica.now_ms)

    def _take_in(self, sent: InFlight, answer: Answer) -> bool:
        """Check a response as all are checked; return whether it helped (rule R39).

        Errors that would end a Kafka node are only a reason to ask again later.
        """
        replica = self._replica
        if answer.top_error or answer.partition is None:
            if answer.top_error:
                self._unanswered(sent, answer.top_error)
            return False
        error, epoch = answer.error, answer.epoch
        if epoch < replica.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False
        endpoints = answer.endpoints or replica.voters.endpoints(answer.leader_id)
        fenced = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if epoch > replica.epoch or error in fenced:
            return replica.learn(answer.leader_id, epoch, endpoints)
        if replica.leader_id is None or not replica.leader_endpoints:
            replica.learn(answer.leader_id, epoch, endpoints)
        told = sent.request
        if error and not isinstance(
            told, fetch_snapshot.FetchSnapshotRequest | update_raft_voter.UpdateRaftVoterRequest
        ):
            return False
        return _ANSWERED[type(told)](replica, sent.node, answer.partition)

    def _unanswered(self, sent: InFlight, error: int) -> None:
        replica = self._replica
        if isinstance(sent.request, ApiVersionsRequest):
            changes.versions_answered(replica, sent.node.id, None)
        replica.requests.back_off(sent.node.id, replica.now_ms)
        if error == ErrorCode.BROKER_NOT_AVAILABLE and replica.shutdown_deadline_ms is not None:
            replica.unreachable.add(sent.node.id)
        if error != ErrorCode.UNSUPPORTED_VERSION:
            return
        match replica.state, sent.request:
            case Prospective(), vote.VoteRequest():
                replica.become_candidate()  # A peer without pre-votes (rule R25).
            case Follower() as state, update_raft_voter.UpdateRaftVoterRequest():
                state.has_told_listeners = True  # It does not want to know (rule R109).

    # Shutting down

    def _shut_down(self) -> None:
        replica = self._replica
        replica.shutdown_deadline_ms = replica.now_ms + replica.config.shutdown_grace_ms
        if isinstance(replica.state, Leader):
            replica.become_resigned()

    def _poll_shutdown(self) -> None:
        """Stop when nobody needs this node any more, or nobody takes over in time (rule R35).

        Kafka waits for its time even if nobody can take over, as when all are stopped at once.
        """
        replica = self._replica
        if replica.shutdown_deadline_ms is None or replica.has_shut_down:
            return
        is_alone = not replica.is_voter or replica.voters.is_only(replica.key)
        is_clean = is_alone or replica.leader_id not in (None, replica.key.id)
        is_over = replica.shutdown_deadline_ms <= replica.now_ms or not self._may_be_succeeded()
        if is_clean or is_over:
            replica.has_shut_down = True
            replica.effects.append(ShutdownDone(is_clean))

    def _may_be_succeeded(self) -> bool:
        """Tell whether enough voters for an election may be there, this one among them."""
        voters = self._replica.voters
        return len(set(voters.ids) - self._replica.unreachable) >= voters.majority
