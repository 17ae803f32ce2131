"""What a leader does for its replicas: it serves fetches, and counts them (rules R46-R53, R70-R74).

A fetch says how far the replica's own log is, so it is what moves the high watermark. One that
finds nothing new is delayed until there is something, or its time is over; so followers learn of a
commit at once (KIP-1166).
"""

from __future__ import annotations

from typing import Any

from dohle.core.errors import ErrorCode
from dohle.protocol.messages.fetch import FetchRequest
from dohle.raft.effects import Reply, ReplyWithRecords
from dohle.raft.events import Received
from dohle.raft.leader import Leader
from dohle.raft.positions import find_mismatch
from dohle.raft.replica import Replica
from dohle.raft.states import DelayedQuorumFetch
from dohle.raft.values import FETCH_MAX_BYTES, ReplicaKey
from dohle.raft.voters import key_of, node_at
from dohle.raft.wire import begin_request, fetch_response, fetching_id, only_partition

#: Further fetches than this many delayed ones are answered at once.
DELAYED_MAX = 1_000


def poll_leader(replica: Replica, leader: Leader) -> None:
    """Keep the voters informed, and resign without a majority of them (rules R46, R74)."""
    if leader.others_needed and leader.check_quorum_deadline_ms <= replica.now_ms:
        replica.become_resigned()
        return
    if _is_removed(replica, leader):
        replica.become_resigned()
        return
    if leader.begin_deadline_ms <= replica.now_ms:
        _begin_epoch(replica, leader)
        leader.forget_observers(replica.now_ms)
    _answer_delayed(replica)


def _is_removed(replica: Replica, leader: Leader) -> bool:
    """Tell whether this node was voted out, and that is committed (rule R107)."""
    offset = replica.log.memberships.latest_offset
    watermark = leader.high_watermark
    return not replica.is_voter and watermark is not None and offset < watermark


def _begin_epoch(replica: Replica, leader: Leader) -> None:
    period_ms = replica.config.fetch_timeout_ms / 2
    leader.begin_deadline_ms = replica.now_ms + period_ms
    for progress in leader.voters.values():
        id, last_ms = progress.key.id, progress.last_fetch_ms
        has_fetched = last_ms is not None and replica.now_ms - last_ms < period_ms
        if has_fetched or progress.key.fits(replica.key):
            continue
        endpoints = replica.voters.endpoints(id)
        node = node_at(id, endpoints, replica.config.default_listener)
        if node is not None:
            replica.send(node, begin_request(replica, progress.key))


def log_changed(replica: Replica, leader: Leader) -> None:
    """Take in what was appended, and who votes from there on, committed or not (rule R2)."""
    keys = {key_of(voter) for voter in replica.voters.voters}
    if keys != {each.key for each in leader.voters.values()}:
        was_alone = not leader.others_needed
        leader.take_voters(replica.voters)
        if was_alone:
            # The timer was not looked at so far, and may have run out long ago.
            leader.check_quorum_deadline_ms = replica.now_ms + replica.check_quorum_ms
    replica.has_news = True
    advance(replica, leader)


def advance(replica: Replica, leader: Leader) -> None:
    """Commit what a majority has, this node as far as its disk has it."""
    if leader.advance(replica.durable_offset) and leader.high_watermark is not None:
        replica.commit(leader.high_watermark)
        replica.has_news = True


def receive_fetch(replica: Replica, received: Received, asked: Any) -> None:
    """Serve a fetch now, or delay it (rules R48, R52)."""
    request = received.request
    assert isinstance(request, FetchRequest)
    is_invalid = min(request.max_wait_ms, asked.fetch_offset, asked.last_fetched_epoch) < 0
    if is_invalid or asked.last_fetched_epoch > asked.current_leader_epoch:
        response = fetch_response(replica, received, ErrorCode.INVALID_REQUEST)
        replica.effects.append(Reply(received.token, response))
        return
    reply = _serve(replica, received)
    _answer_delayed(replica)
    is_full = len(replica.delayed) >= DELAYED_MAX
    if isinstance(reply, Reply) or request.max_wait_ms == 0 or is_full or _has_news(replica, asked):
        replica.effects.append(reply)
    else:
        deadline_ms = replica.now_ms + request.max_wait_ms
        replica.delayed[received.token] = DelayedQuorumFetch(received, reply, deadline_ms)


def _has_news(replica: Replica, asked: Any) -> bool:
    leader = replica.state
    assert isinstance(leader, Leader)
    watermark = leader.high_watermark
    if watermark is not None and asked.high_watermark < watermark:
        return True
    return int(asked.fetch_offset) < replica.log.end_offset


def _serve(replica: Replica, received: Received) -> Reply | ReplyWithRecords:
    """Make the answer to a fetch; a valid one first counts for its replica (rules R49-R51)."""
    asked = only_partition(received.request)
    assert asked is not None, "it was checked when it came"
    assert isinstance(received.request, FetchRequest)
    key = ReplicaKey(fetching_id(received.request), asked.replica_directory_id)
    error = replica.leader_error(asked.current_leader_epoch)
    leader = replica.state
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        return Reply(received.token, fetch_response(replica, received, error))
    mismatch = find_mismatch(replica.log, asked.fetch_offset, asked.last_fetched_epoch)
    if mismatch is None and key.id == replica.key.id:
        # Nobody fetches from itself (R53).
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        return Reply(received.token, fetch_response(replica, received, error))
    if mismatch is None and key.id >= 0:
        _count(replica, leader, key, asked.fetch_offset)
    watermark = -1 if leader.high_watermark is None else leader.high_watermark
    response = fetch_response(replica, received, high_watermark=watermark, mismatch=mismatch)
    if mismatch is not None:
        return Reply(received.token, response)
    return ReplyWithRecords(received.token, response, asked.fetch_offset, FETCH_MAX_BYTES)


def _count(replica: Replica, leader: Leader, key: ReplicaKey, offset: int) -> None:
    now_ms = replica.now_ms
    leader.progress_of(key).fetched(offset, replica.log.end_offset, now_ms)
    leader.note_contact(key, now_ms, replica.check_quorum_ms)
    advance(replica, leader)


def _answer_delayed(replica: Replica) -> None:
    """Answer all delayed fetches if there is news, else those whose time is over (rule R52)."""
    while replica.has_news:
        replica.has_news = False
        delayed, replica.delayed = replica.delayed, {}
        for each in delayed.values():
            replica.effects.append(_serve(replica, each.received))
    for token, each in list(replica.delayed.items()):
        if each.deadline_ms <= replica.now_ms:
            del replica.delayed[token]
            replica.effects.append(each.reply)


def fail_delayed(replica: Replica) -> None:
    """Tell all who wait that this node does not lead any more (rule R36)."""
    delayed, replica.delayed = replica.delayed, {}
    for each in delayed.values():
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = fetch_response(replica, each.received, error)
        replica.effects.append(Reply(each.received.token, response))
