"""Snapshots that are sent in chunks to a replica that is too far behind (rules R56, R57)."""

from __future__ import annotations

from typing import Any

from dohle.core.errors import ErrorCode
from dohle.raft.effects import (
    AppendSnapshot,
    BeginSnapshot,
    DiscardSnapshot,
    InstallSnapshot,
    Reply,
    ReplyWithSnapshot,
)
from dohle.raft.events import Received
from dohle.raft.leader import Leader
from dohle.raft.replica import Replica
from dohle.raft.states import Download, Follower
from dohle.raft.values import BOOTSTRAP_SNAPSHOT, Node, OffsetAndEpoch, ReplicaKey
from dohle.raft.wire import fetch_snapshot_response

# The leader's side


def receive_fetch_snapshot(replica: Replica, received: Received, asked: Any) -> None:
    """Send a part of a snapshot; one that is being fetched shows that the replica lives."""
    id = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    error = replica.leader_error(asked.current_leader_epoch)
    size = replica.log.snapshot_size(id)
    if error is ErrorCode.NONE and (size is None or id == BOOTSTRAP_SNAPSHOT):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    elif error is ErrorCode.NONE and size is not None and not 0 <= asked.position < size:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    if error is not ErrorCode.NONE or size is None:
        response = fetch_snapshot_response(replica, received, error, asked.snapshot_id)
        replica.effects.append(Reply(received.token, response))
        return
    request: Any = received.request
    leader = replica.state
    assert isinstance(leader, Leader)
    key = ReplicaKey(request.replica_id, asked.replica_directory_id)
    leader.note_contact(key, replica.now_ms, replica.check_quorum_ms)
    max_bytes = min(request.max_bytes, size)
    response = fetch_snapshot_response(
        replica, received, error, asked.snapshot_id, size, asked.position
    )
    reply = ReplyWithSnapshot(received.token, response, id, asked.position, max_bytes)
    replica.effects.append(reply)


# The follower's side


def begin_download(replica: Replica, state: Follower, id: OffsetAndEpoch) -> None:
    """Fetch a snapshot, unless it is here already and only has to take the log's place."""
    if id in replica.log.snapshots:
        _install(replica, id)
    else:
        state.download = Download(id)
        replica.effects.append(BeginSnapshot(id))


def snapshot_answered(replica: Replica, node: Node, partition: Any) -> bool:
    """Keep a chunk; after the last one the snapshot takes the place of the log."""
    state = replica.state
    if not isinstance(state, Follower) or state.download is None:
        return False
    download = state.download
    id = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    if partition.error_code or (id, partition.position) != (
        download.snapshot_id,
        download.position,
    ):
        state.download = None
        replica.effects.append(DiscardSnapshot(download.snapshot_id))
        return False
    state.heard(replica.now_ms)
    data = partition.unaligned_records or b""
    replica.effects.append(AppendSnapshot(id, data))
    download.position += len(data)
    if download.position >= partition.size:
        state.download = None
        _install(replica, id)
    return bool(data)


def _install(replica: Replica, id: OffsetAndEpoch) -> None:
    replica.installing = id
    replica.effects.append(InstallSnapshot(id))


def installed(replica: Replica, id: OffsetAndEpoch) -> None:
    """Go on behind the snapshot: what it holds is committed."""
    if replica.installing == id:
        replica.installing = None
    replica.synced_offset = replica.log.end_offset
    replica.commit(id.offset)
