"""What a follower tells its leader of itself: listeners, and that it wants to vote.

A voter whose entry in the log is not what it is now says so; at kraft.version 0 each voter says it
once to each leader (rule R109). A controller that is no voter asks to become one if it is
configured so (KIP-1186, rule R110).
"""

from __future__ import annotations

from typing import Any

from dohle.core.errors import ErrorCode
from dohle.protocol.messages import add_raft_voter, update_raft_voter
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.protocol.schema import Request
from dohle.raft.replica import Replica
from dohle.raft.states import Follower
from dohle.raft.values import Node


def ask_leader(replica: Replica, state: Follower, leader: Node) -> bool:
    """Send what the leader should know, once in a period; return whether something was sent."""
    if state.update_deadline_ms > replica.now_ms or not replica.config.is_controller:
        return False
    state.update_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
    request = _update(replica, state) if replica.is_voter else _join(replica)
    return request is not None and replica.send(leader, request)


def _update(replica: Replica, state: Follower) -> Request | None:
    own, membership = replica.config.own_entry, replica.log.memberships.latest
    if state.has_told_listeners or own in membership.voters:
        return None
    lowest, highest = own.kraft_versions
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=replica.config.cluster_id,
        current_leader_epoch=replica.epoch,
        voter_id=own.id,
        voter_directory_id=own.directory_id,
        listeners=tuple(
            update_raft_voter.Listener(name=name, host=host, port=port)
            for name, host, port in own.endpoints
        ),
        kraft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        ),
    )


def update_answered(replica: Replica, node: Node, response: Any) -> bool:
    """Note that this leader knows; one that cannot know does not have to be told again."""
    is_told = response.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
    if isinstance(replica.state, Follower) and is_told:
        replica.state.heard(replica.now_ms)
        replica.state.has_told_listeners = True
    return is_told


def _join(replica: Replica) -> Request | None:
    own = replica.config.own_entry
    if not replica.config.auto_join or not replica.log.memberships.latest.kraft_version:
        return None
    old = replica.voters.by_id(own.id)
    if old is not None:
        # A directory that this node had before.
        return RemoveRaftVoterRequest(
            cluster_id=replica.config.cluster_id,
            voter_id=old.id,
            voter_directory_id=old.directory_id,
        )
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=replica.config.cluster_id,
        timeout_ms=replica.config.request_timeout_ms,
        voter_id=own.id,
        voter_directory_id=own.directory_id,
        listeners=tuple(
            add_raft_voter.Listener(name=name, host=host, port=port)
            for name, host, port in own.endpoints
        ),
        ack_when_committed=False,
    )
