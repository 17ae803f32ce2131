"""BeginQuorumEpoch and EndQuorumEpoch: a leader says that it leads, and that it stops."""

from __future__ import annotations

from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.raft.effects import Reply
from dohle.raft.election import is_meant
from dohle.raft.events import Received
from dohle.raft.membership import endpoints_of
from dohle.raft.replica import Replica
from dohle.raft.states import Follower, Resigned
from dohle.raft.values import Node, ReplicaKey
from dohle.raft.voters import node_at
from dohle.raft.wire import begin_response, end_request, end_response


def receive_begin(replica: Replica, received: Received, told: Any) -> None:
    """Follow the leader of this or a higher epoch (rule R43b)."""
    request: Any = received.request
    error = _follow(replica, request, told)
    voter = ReplicaKey(request.voter_id, told.voter_directory_id)
    if error is ErrorCode.NONE and not is_meant(replica, voter):
        error = ErrorCode.INVALID_VOTER_KEY
    replica.effects.append(Reply(received.token, begin_response(replica, received, error)))


def receive_end(replica: Replica, received: Received, told: Any) -> None:
    """Let the time to the next election depend on the place among the successors (rule R44)."""
    error = _follow(replica, received.request, told)
    if error is ErrorCode.NONE:
        match replica.state:
            case Follower(leader_id=leader_id) as state if leader_id == told.leader_id:
                state.fetch_deadline_ms = replica.now_ms + _election_backoff_ms(replica, told)
    replica.effects.append(Reply(received.token, end_response(replica, received, error)))


def _follow(replica: Replica, request: Any, told: Any) -> ErrorCode:
    if told.leader_epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if told.leader_id < 0:
        return ErrorCode.INVALID_REQUEST
    endpoints = endpoints_of(request.leader_endpoints)
    leader_id = BrokerId(told.leader_id)
    replica.learn(leader_id, told.leader_epoch, endpoints or replica.voters.endpoints(leader_id))
    return ErrorCode.NONE


def _election_backoff_ms(replica: Replica, told: Any) -> int:
    candidates = [
        ReplicaKey(each.candidate_id, each.candidate_directory_id)
        for each in told.preferred_candidates
    ] or [ReplicaKey(BrokerId(id)) for id in told.preferred_successors]
    if not candidates:
        return 0
    longest = replica.config.election_backoff_max_ms
    place = next((i for i, key in enumerate(candidates) if key.fits(replica.key)), None)
    if place is None:
        return longest
    if place == 0:
        return 0
    return min(longest, (longest >> (len(candidates) - 1)) << (place - 1))


def poll_resigned(replica: Replica, state: Resigned) -> None:
    """Tell the voters that the epoch is over; then wait for another leader (rules R32, R45).

    A node that stops tells them again and again, so as to notice when there is nobody left to lead.
    """
    if state.election_deadline_ms <= replica.now_ms and replica.shutdown_deadline_ms is None:
        replica.become_unattached(state.epoch + 1)
        return
    voters, listener = replica.voters, replica.config.default_listener
    is_stopping = replica.shutdown_deadline_ms is not None
    for key in state.successors if is_stopping else state.unaware:
        node = node_at(key.id, voters.endpoints(key.id), listener)
        if node is not None:
            replica.send(node, end_request(replica, state.successors))


def end_answered(replica: Replica, node: Node, partition: Any) -> bool:
    """Note that a voter knows."""
    if isinstance(replica.state, Resigned):
        unaware = replica.state.unaware
        replica.state.unaware = tuple(key for key in unaware if key.id != node.id)
        if replica.shutdown_deadline_ms is not None:
            replica.requests.back_off(node.id, replica.now_ms)
    return True
