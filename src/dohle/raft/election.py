"""Elections: who asks for votes, and who gets them (rules R22-R30, R42, R43).

Pre-votes (KIP-996) come first: a node that was cut off cannot raise the epoch of the others, and
one that hears its leader does not help to depose it. A real vote is on the disk before it is told.
"""

from __future__ import annotations

from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.uuid import ZERO_UUID
from dohle.raft.effects import Reply
from dohle.raft.events import Received
from dohle.raft.leader import Leader
from dohle.raft.replica import Replica
from dohle.raft.states import Candidate, Follower, Prospective, Unattached
from dohle.raft.values import Node, OffsetAndEpoch, ReplicaKey
from dohle.raft.voters import node_at
from dohle.raft.wire import vote_request, vote_response


def poll_prospective(replica: Replica, state: Prospective) -> None:
    """Ask for pre-votes until there is a majority, or the time is over."""
    if state.election_deadline_ms <= replica.now_ms:
        replica.give_up_pre_vote()
    else:
        _ask(replica, state, pre_vote=True)


def poll_candidate(replica: Replica, state: Candidate) -> None:
    """Ask for votes; one that cannot win waits its time out (rules R29, R30)."""
    if state.election_deadline_ms <= replica.now_ms:
        replica.become_prospective()
    elif not state.ballot.is_lost:
        _ask(replica, state, pre_vote=False)


def _ask(replica: Replica, state: Prospective | Candidate, *, pre_vote: bool) -> None:
    voters, listener = state.ballot.voters, replica.config.default_listener
    for key in state.ballot.missing:
        node = node_at(key.id, voters.endpoints(key.id), listener)
        if node is not None:
            replica.send(node, vote_request(replica, key, pre_vote=pre_vote))


def vote_answered(replica: Replica, node: Node, partition: Any) -> bool:
    """Count an answer."""
    if isinstance(replica.state, Prospective | Candidate):
        replica.state.ballot.record(node.id, granted=partition.vote_granted)
        replica.count_votes()
    return True


def receive_vote(replica: Replica, received: Received, asked: Any) -> None:
    """Decide on a vote, in Kafka's order (rule R42)."""
    error, granted = _decide(replica, received.request, asked)
    response = vote_response(replica, received, error, granted=granted)
    replica.effects.append(Reply(received.token, response))


def _decide(replica: Replica, request: Any, asked: Any) -> tuple[ErrorCode, bool]:
    end = OffsetAndEpoch(asked.last_offset, asked.last_offset_epoch)
    epoch_max = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
    if end.offset < 0 or end.epoch < 0 or end.epoch > epoch_max:
        return ErrorCode.INVALID_REQUEST, False
    if asked.replica_epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, False
    if asked.replica_id < 0:
        return ErrorCode.INVALID_REQUEST, False
    if asked.replica_epoch > replica.epoch:
        replica.become_unattached(asked.replica_epoch)
    if not is_meant(replica, ReplicaKey(request.voter_id, asked.voter_directory_id)):
        return ErrorCode.INVALID_VOTER_KEY, False
    is_up_to_date = end.is_up_to_date_with(replica.log_end)
    if asked.pre_vote:
        return ErrorCode.NONE, is_up_to_date and _is_open(replica)
    candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
    return ErrorCode.NONE, _vote(replica, candidate, is_up_to_date=is_up_to_date)


def is_meant(replica: Replica, voter: ReplicaKey) -> bool:
    """Tell whether a request was meant for this node with this directory; before v1 none says."""
    if voter.id < 0:
        return True
    own = replica.key
    return voter.id == own.id and voter.directory_id in (ZERO_UUID, own.directory_id)


def _is_open(replica: Replica) -> bool:
    """Tell whether another leader may be wanted: not while this node hears one (rule R133)."""
    match replica.state:
        case Leader():
            return False
        case Follower(has_fetched=has_fetched):
            return not has_fetched
    return True


def _vote(replica: Replica, candidate: ReplicaKey, *, is_up_to_date: bool) -> bool:
    state = replica.state
    if not isinstance(state, Unattached | Prospective):
        return False
    if state.voted is not None:
        return state.voted.fits(candidate)
    if state.leader_id is not None or not is_up_to_date:
        return False
    state.voted = candidate
    replica.persist()
    state.election_deadline_ms = replica.random_election_deadline()
    return True
