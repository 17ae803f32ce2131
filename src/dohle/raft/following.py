"""Following: find the leader, copy its log, take over its high watermark (rules R38, R54, R55)."""

from __future__ import annotations

from typing import Any

from dohle.core.ids import BrokerId
from dohle.raft import joining, snapshots
from dohle.raft.effects import AppendFetched, Truncate
from dohle.raft.positions import truncation_point
from dohle.raft.replica import Replica
from dohle.raft.states import Follower, Unattached
from dohle.raft.values import BOOTSTRAP_SNAPSHOT, Node, OffsetAndEpoch
from dohle.raft.voters import node_at
from dohle.raft.wire import fetch_request, fetch_snapshot_request, leader_node

_FIRST_BOOTSTRAP_ID = -2


def poll_unattached(replica: Replica, state: Unattached) -> None:
    """Look for a leader, until it is time to ask for votes (rule R22)."""
    if replica.may_lead and state.election_deadline_ms <= replica.now_ms:
        if replica.shutdown_deadline_ms is None:
            replica.become_prospective()
        return
    _fetch_from_anybody(replica)


def poll_follower(replica: Replica, state: Follower) -> None:
    """Send the next request to the leader; without its answers a voter wants another (rule R23)."""
    if replica.may_lead and state.fetch_deadline_ms <= replica.now_ms:
        replica.become_prospective()
        return
    if replica.requests.any_in_flight(replica.now_ms):
        return
    leader = leader_node(replica, replica.config.default_listener)
    if leader is None or not replica.requests.is_ready(leader.id, replica.now_ms):
        _fetch_from_anybody(replica)
    elif not joining.ask_leader(replica, state, leader) and _may_fetch(replica):
        if state.download is None:
            replica.send(leader, fetch_request(replica))
        else:
            download = state.download
            request = fetch_snapshot_request(replica, download.snapshot_id, download.position)
            replica.send(leader, request)


def _may_fetch(replica: Replica) -> bool:
    """Tell whether the end of the log can be told: a controller's must be on disk (rule R60)."""
    is_durable = replica.durable_offset >= replica.log.end_offset
    return replica.installing is None and (is_durable or not replica.config.is_controller)


def _fetch_from_anybody(replica: Replica) -> None:
    """Fetch from a node that may know the leader: if it is not one, it says who is (rule R120)."""
    if not _may_fetch(replica) or replica.requests.any_in_flight(replica.now_ms):
        return
    for node in replica.shuffled(_bootstrap_nodes(replica)):
        if replica.requests.is_ready(node.id, replica.now_ms):
            replica.send(node, fetch_request(replica))
            return


def _bootstrap_nodes(replica: Replica) -> list[Node]:
    config = replica.config
    own = {(each.host, each.port) for each in config.endpoints}
    if config.bootstrap_servers:
        return [
            Node(BrokerId(_FIRST_BOOTSTRAP_ID - i), host, port)
            for i, (host, port) in enumerate(config.bootstrap_servers)
            if (host, port) not in own
        ]
    voters = config.static_voters or replica.voters.voters
    nodes = (node_at(each.id, each.endpoints, config.default_listener) for each in voters)
    return [node for node in nodes if node is not None and node.id != replica.key.id]


def fetch_answered(replica: Replica, node: Node, partition: Any) -> bool:
    """Append what the leader has sent, or go back to where the logs agree (rule R54)."""
    state = replica.state
    if not isinstance(state, Follower) or partition.error_code:
        return False
    state.heard(replica.now_ms)
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0 and diverging.end_offset >= 0:
        return _truncate(replica, OffsetAndEpoch(diverging.end_offset, diverging.epoch))
    if snapshot.epoch >= 0 and snapshot.end_offset >= 0:
        snapshots.begin_download(
            replica, state, OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
        )
        return True
    state.leader_high_watermark = partition.high_watermark
    if partition.records:
        replica.change_log(AppendFetched(partition.records, replica.epoch))
    else:
        log_changed(replica, state)
    return True


def log_changed(replica: Replica, state: Follower) -> None:
    """Commit as far as the leader has said and the log goes."""
    if state.leader_high_watermark >= 0:
        replica.commit(min(replica.log.end_offset, state.leader_high_watermark))


def _truncate(replica: Replica, leader_end: OffsetAndEpoch) -> bool:
    offset = truncation_point(replica.log, leader_end)
    newest = max(replica.log.snapshots, default=BOOTSTRAP_SNAPSHOT)
    if offset < max(replica.high_watermark or 0, newest.offset):
        return False  # That is committed: such a leader is not believed.
    if offset == replica.log.end_offset:
        return False
    replica.synced_offset = min(replica.synced_offset, offset)
    replica.change_log(Truncate(offset))
    return True
