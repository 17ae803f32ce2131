"""Changes of the voter set, as the leader makes them (KIP-853): one voter at a time.

A voters record counts from the moment it is in the log, so the next one is appended only after it
is committed, and none before a record of the leader's own epoch is: then each majority of the old
set meets each majority of the new one (rules R105-R108). At kraft.version 0 the set is fixed, and
a leader only remembers what voters tell of themselves, until all have and the version can be
raised (rule R112).
"""

from __future__ import annotations

from typing import Any

from dohle import __version__
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from dohle.protocol.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from dohle.protocol.schema import Response, VersionRange
from dohle.raft.effects import AppendControlBatch, Reply, UpgradeDecided
from dohle.raft.events import Received, UpgradeKraftVersion
from dohle.raft.leader import Leader
from dohle.raft.membership import KRAFT_VERSIONS, Membership, Voter, endpoints_of
from dohle.raft.replica import Replica
from dohle.raft.states import PendingChange
from dohle.raft.values import ReplicaKey
from dohle.raft.voters import VoterSet, endpoint_at, key_of, node_at
from dohle.raft.wire import leader_node, named_leader
from dohle.records.control import ControlRecordType

#: A new voter must have had the whole log once, and have fetched within this time.
_CAUGHT_UP_WITHIN_MS = 3_600_000
_FEATURE = "kraft.version"


class Refused(Exception):
    """A change that is not made; ends in an error of the response."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def receive_change(replica: Replica, received: Received) -> None:
    """Begin to add, remove or update a voter, or refuse to."""
    request = received.request
    try:
        match request:
            case AddRaftVoterRequest():
                _begin_to_add(replica, received.token, request)
            case RemoveRaftVoterRequest():
                _remove(replica, received.token, request)
            case UpdateRaftVoterRequest():
                _update(replica, request)
                _reply_to_update(replica, received, ErrorCode.NONE)
    except Refused as refused:
        if isinstance(request, UpdateRaftVoterRequest):
            _reply_to_update(replica, received, refused.error)
        else:
            is_removal = isinstance(request, RemoveRaftVoterRequest)
            _reply(replica, received.token, is_removal, refused.error, refused.message)


# Adding


def _begin_to_add(replica: Replica, token: int, request: AddRaftVoterRequest) -> None:
    _check_cluster(replica, request)
    leader = _leader(replica)
    voter = _voter(replica, request)
    membership = _check_open_to_change(replica, leader)
    if VoterSet(membership.voters).by_id(voter.id) is not None:
        raise Refused(ErrorCode.DUPLICATE_VOTER, f"the voters have a node {voter.id} already")
    node = node_at(voter.id, voter.endpoints, replica.config.default_listener)
    assert node is not None, "it was checked"
    # Without a name and a version the request would be refused.
    question = ApiVersionsRequest(client_software_name="dohle", client_software_version=__version__)
    if not replica.send(node, question):
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"node {voter.id} has to answer another first")
    deadline_ms = replica.now_ms + replica.config.request_timeout_ms
    replica.change = PendingChange(
        token, deadline_ms, False, joining=voter, ack_when_committed=request.ack_when_committed
    )


def versions_answered(replica: Replica, id: BrokerId, response: ApiVersionsResponse | None) -> None:
    """Add the voter whose answer was awaited, if it can follow (rule R106)."""
    change, leader = replica.change, replica.state
    if change is None or change.joining is None or change.joining.id != id:
        return
    assert isinstance(leader, Leader), "who does not lead has no change under way"
    try:
        _add(replica, leader, change, change.joining, response)
    except Refused as refused:
        _end(replica, refused.error, refused.message)


def _add(
    replica: Replica,
    leader: Leader,
    change: PendingChange,
    joining: Voter,
    response: ApiVersionsResponse | None,
) -> None:
    if response is None or response.error_code:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the new voter does not tell its versions")
    found = [each for each in response.supported_features if each.name == _FEATURE]
    versions = VersionRange(found[0].min_version, found[0].max_version) if found else None
    membership = replica.log.memberships.latest
    if versions is None or not versions.covers(membership.kraft_version):
        message = f"the new voter does not know kraft.version {membership.kraft_version}"
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    progress = leader.observers.get(key_of(joining))
    if progress is None or progress.last_caught_up_ms is None or progress.last_fetch_ms is None:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the new voter has not caught up yet")
    if progress.last_fetch_ms < replica.now_ms - _CAUGHT_UP_WITHIN_MS:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the new voter does not fetch any more")
    voter = Voter(joining.id, joining.directory_id, joining.endpoints, versions)
    change.joining = None
    _append_voters(replica, (*membership.voters, voter))
    if not change.ack_when_committed:
        _end(replica, ErrorCode.NONE)


# Removing


def _remove(replica: Replica, token: int, request: RemoveRaftVoterRequest) -> None:
    _check_cluster(replica, request)
    leader = _leader(replica)
    removed = _key(request)
    membership = _check_open_to_change(replica, leader)
    left = tuple(voter for voter in membership.voters if key_of(voter) != removed)
    if len(left) == len(membership.voters) or not left:
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"{removed} is no voter, or is the last one")
    deadline_ms = replica.now_ms + replica.config.request_timeout_ms
    replica.change = PendingChange(token, deadline_ms, True)
    _append_voters(replica, left)


def poll_change(replica: Replica, leader: Leader) -> None:
    """Answer a change when it is committed, or when its time is over: it may still be."""
    change = replica.change
    if change is None:
        return
    if change.joining is None and change.offset is None:
        change.offset = replica.log.memberships.latest_offset
    watermark = leader.high_watermark
    if change.offset is not None and watermark is not None and change.offset < watermark:
        _end(replica, ErrorCode.NONE)
    elif change.deadline_ms <= replica.now_ms:
        _end(replica, ErrorCode.REQUEST_TIMED_OUT, "the change is not committed in time")


def fail_change(replica: Replica) -> None:
    """Tell the sender of a pending change that this node does not lead any more."""
    if replica.change is not None:
        _end(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader has changed")


def _end(replica: Replica, error: ErrorCode, message: str | None = None) -> None:
    change, replica.change = replica.change, None
    assert change is not None
    _reply(replica, change.token, change.is_removal, error, message)


def _reply(
    replica: Replica, token: int, is_removal: bool, error: ErrorCode, message: str | None
) -> None:
    kind = RemoveRaftVoterResponse if is_removal else AddRaftVoterResponse
    response: Response = kind(error_code=error, error_message=message)
    replica.effects.append(Reply(token, response))


# Updating


def _update(replica: Replica, request: UpdateRaftVoterRequest) -> None:
    _check_cluster(replica, request)
    error = replica.leader_error(request.current_leader_epoch)
    if error is not ErrorCode.NONE:
        raise Refused(error, "not the leader of that epoch")
    leader = _leader(replica)
    told = _voter(replica, request)
    feature = request.kraft_version_feature
    versions = VersionRange(feature.min_supported_version, feature.max_supported_version)
    if not 0 <= versions.lowest <= versions.highest:
        raise Refused(ErrorCode.INVALID_REQUEST, f"no range of versions: {versions}")
    voter = Voter(told.id, told.directory_id, told.endpoints, versions)
    if replica.log.memberships.latest.kraft_version == 0:
        _remember(replica, leader, voter)
        return
    membership = _check_open_to_change(replica, leader)
    if not versions.covers(membership.kraft_version):
        raise Refused(ErrorCode.INVALID_REQUEST, "the voter does not know the finalized version")
    if not any(each.is_same_node(voter) for each in membership.voters):
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"{key_of(voter)} is no voter")
    changed = membership.with_voter(voter)
    if changed != membership:
        _append_voters(replica, changed.voters)


def _remember(replica: Replica, leader: Leader, voter: Voter) -> None:
    if replica.change is not None or leader.high_watermark is None:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the leader is not ready for changes")
    if replica.voters.by_id(voter.id) is None:
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"node {voter.id} is no voter")
    leader.told[voter.id] = voter


def _reply_to_update(replica: Replica, received: Received, error: ErrorCode) -> None:
    leader = leader_node(replica, received.listener)
    response = UpdateRaftVoterResponse(
        error_code=error,
        current_leader=CurrentLeader(
            leader_id=named_leader(replica),
            leader_epoch=replica.epoch,
            host=leader.host if leader else "",
            port=leader.port if leader else 0,
        ),
    )
    replica.effects.append(Reply(received.token, response))


# Upgrading


def upgrade(replica: Replica, asked: UpgradeKraftVersion) -> None:
    """Let the log have the voters from now on (rule R112)."""
    try:
        changed = _upgraded(replica, asked)
    except Refused as refused:
        replica.effects.append(UpgradeDecided(asked.token, refused.error, refused.message))
        return
    replica.effects.append(UpgradeDecided(asked.token))
    if changed is not None and not asked.validate_only:
        records = tuple(changed.control_records())
        replica.change_log(AppendControlBatch(replica.epoch, records))


def _upgraded(replica: Replica, asked: UpgradeKraftVersion) -> Membership | None:
    leader = replica.state
    if not isinstance(leader, Leader) or leader.epoch != asked.epoch:
        raise Refused(ErrorCode.NOT_CONTROLLER, "this node does not lead that epoch")
    level = replica.log.memberships.latest.kraft_version
    if asked.level == level:
        return None
    if asked.level < level or not KRAFT_VERSIONS.covers(asked.level):
        message = f"kraft.version cannot go from {level} to {asked.level}"
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, message)
    if leader.high_watermark is None:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, "the leader has not committed anything yet")
    told = {**leader.told, replica.key.id: replica.config.own_entry}
    missing = [id for id in replica.voters.ids if id not in told]
    if missing:
        message = f"voters that have not told their listeners and versions yet: {missing}"
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, message)
    voters = tuple(told[id] for id in replica.voters.ids)
    if not all(voter.kraft_versions.covers(asked.level) for voter in voters):
        message = f"not every voter knows kraft.version {asked.level}"
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, message)
    return Membership(asked.level, voters)


# What all of them check


def _check_cluster(replica: Replica, request: Any) -> None:
    if request.cluster_id not in (None, replica.config.cluster_id):
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, "that is another cluster")


def _leader(replica: Replica) -> Leader:
    error = replica.leader_error(replica.epoch)
    leader = replica.state
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        raise Refused(error, "this node is not the leader")
    return leader


def _key(request: Any) -> ReplicaKey:
    key = ReplicaKey(BrokerId(request.voter_id), request.voter_directory_id)
    if key.id < 0 or key.directory_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "a voter has an id and a directory id")
    return key


def _voter(replica: Replica, request: Any) -> Voter:
    key = _key(request)
    endpoints = endpoints_of(request.listeners)
    listener = replica.config.default_listener
    if endpoint_at(endpoints, listener) is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"no endpoint for the listener {listener}")
    return Voter(key.id, key.directory_id, endpoints)


def _check_open_to_change(replica: Replica, leader: Leader) -> Membership:
    """Return who votes now, if the set may change: nothing of it is open (rule R105)."""
    history, watermark = replica.log.memberships, leader.high_watermark
    if replica.change is not None:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "another change is under way")
    if watermark is None:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything yet")
    if history.latest.kraft_version == 0:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "kraft.version 0 has a fixed set of voters")
    if history.latest_offset >= watermark:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the last change is not committed yet")
    return history.latest


def _append_voters(replica: Replica, voters: tuple[Voter, ...]) -> None:
    level = replica.log.memberships.latest.kraft_version
    records = Membership(level, voters).control_records()
    kept = tuple(each for each in records if each[0] is ControlRecordType.KRAFT_VOTERS)
    replica.change_log(AppendControlBatch(replica.epoch, kept))
