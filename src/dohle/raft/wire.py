"""The quorum's requests, and how responses are made and read.

All of them are about one partition. Responses say who leads which epoch, in the partition, and
from some version on where the leader is: for the listener that the request came in on (rule R41).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.uuid import METADATA_TOPIC_ID
from dohle.protocol.apis import find_api
from dohle.protocol.messages import begin_quorum_epoch as begin
from dohle.protocol.messages import end_quorum_epoch as end
from dohle.protocol.messages import fetch, fetch_snapshot, update_raft_voter, vote
from dohle.protocol.schema import Request, Response
from dohle.raft.events import Received
from dohle.raft.membership import VoterEndpoint
from dohle.raft.positions import Mismatch
from dohle.raft.values import FETCH_MAX_BYTES, NOBODY, Node, OffsetAndEpoch, ReplicaKey
from dohle.raft.voters import endpoint_at

if TYPE_CHECKING:
    from dohle.raft.replica import Replica

TOPIC = TopicName("__cluster_metadata")
PARTITION = 0
FETCH_MAX_WAIT_MS = 500
_FETCH_WITH_REPLICA_STATE = 15

#: The first versions that tell where the leader is.
_ENDPOINTS_SINCE = {52: 1, 53: 1, 54: 1, 59: 1, 1: 17}


# Requests


def vote_request(replica: Replica, voter: ReplicaKey, *, pre_vote: bool) -> vote.VoteRequest:
    """Ask a voter for its vote (rule R43)."""
    partition = vote.VoteRequestPartitionData(
        partition_index=PARTITION,
        replica_epoch=replica.epoch,
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=replica.log_end.epoch,
        last_offset=replica.log_end.offset,
        pre_vote=pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=TOPIC, partitions=(partition,))
    return vote.VoteRequest(
        cluster_id=replica.config.cluster_id, voter_id=voter.id, topics=(topic,)
    )


def begin_request(replica: Replica, voter: ReplicaKey) -> begin.BeginQuorumEpochRequest:
    """Tell a voter who leads (rule R46)."""
    partition = begin.BeginQuorumEpochRequestPartitionData(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=replica.key.id,
        leader_epoch=replica.epoch,
    )
    topic = begin.BeginQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=(partition,))
    return begin.BeginQuorumEpochRequest(
        cluster_id=replica.config.cluster_id,
        voter_id=voter.id,
        topics=(topic,),
        leader_endpoints=tuple(
            begin.LeaderEndpoint(name=name, host=host, port=port)
            for name, host, port in replica.config.endpoints
        ),
    )


def end_request(replica: Replica, successors: tuple[ReplicaKey, ...]) -> end.EndQuorumEpochRequest:
    """Tell a voter that the leader has resigned, and who may take over (rule R45)."""
    partition = end.EndQuorumEpochRequestPartitionData(
        partition_index=PARTITION,
        leader_id=replica.key.id,
        leader_epoch=replica.epoch,
        preferred_successors=tuple(key.id for key in successors),
        preferred_candidates=tuple(
            end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in successors
        ),
    )
    topic = end.EndQuorumEpochRequestTopicData(topic_name=TOPIC, partitions=(partition,))
    return end.EndQuorumEpochRequest(cluster_id=replica.config.cluster_id, topics=(topic,))


def fetch_request(replica: Replica) -> fetch.FetchRequest:
    """Ask for what follows the end of the log (rule R47)."""
    watermark = replica.high_watermark
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=replica.epoch,
        fetch_offset=replica.log_end.offset,
        last_fetched_epoch=replica.log_end.epoch,
        replica_directory_id=replica.key.directory_id,
        high_watermark=-1 if watermark is None else watermark,
    )
    topic = fetch.FetchTopic(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return fetch.FetchRequest(
        cluster_id=replica.config.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=replica.key.id),
        max_wait_ms=FETCH_MAX_WAIT_MS,
        max_bytes=FETCH_MAX_BYTES,
        topics=(topic,),
    )


def fetch_snapshot_request(
    replica: Replica, snapshot_id: OffsetAndEpoch, position: int
) -> fetch_snapshot.FetchSnapshotRequest:
    """Ask for the bytes of a snapshot from a position on (rule R57)."""
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=replica.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=replica.key.directory_id,
    )
    topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=TOPIC, partitions=(partition,))
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=replica.config.cluster_id,
        replica_id=replica.key.id,
        max_bytes=FETCH_MAX_BYTES,
        topics=(topic,),
    )


def in_version(request: Request, version: int) -> Request:
    """Return a request as a version carries it: below v15 of Fetch the id is elsewhere (R47)."""
    if not isinstance(request, fetch.FetchRequest) or version >= _FETCH_WITH_REPLICA_STATE:
        return request
    return request.replace(
        replica_id=request.replica_state.replica_id, replica_state=fetch.ReplicaState()
    )


# Reading a request


def only_partition(request: Any) -> Any | None:
    """Return the request's partition, if that is the one of the quorum and the only one."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    if isinstance(request, fetch.FetchRequest):
        is_ours = topic.topic_id == METADATA_TOPIC_ID and partition.partition == PARTITION
    elif isinstance(request, fetch_snapshot.FetchSnapshotRequest):
        is_ours = (topic.name, partition.partition) == (TOPIC, PARTITION)
    else:
        is_ours = (topic.topic_name, partition.partition_index) == (TOPIC, PARTITION)
    return partition if is_ours else None


def fetching_id(request: fetch.FetchRequest) -> BrokerId:
    """Return who fetches: below v15 the id is elsewhere."""
    return max(request.replica_state.replica_id, request.replica_id)


# Responses


def refusal(request: Request, error: ErrorCode) -> Response:
    """Return a response whose only content is a top-level error."""
    kind: Any = find_api(request.API_KEY).response()
    refused: Response = kind(error_code=error)
    return refused


def unknown_partition(request: Any) -> Response:
    """Refuse a request that is about another partition; a FetchSnapshot in the partition."""
    if not isinstance(request, fetch_snapshot.FetchSnapshotRequest):
        return refusal(request, ErrorCode.INVALID_REQUEST)
    topics = tuple(
        fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
            name=topic.name,
            partitions=tuple(
                fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
                    index=each.partition,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    unaligned_records=b"",
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return fetch_snapshot.FetchSnapshotResponse(topics=topics)


def vote_response(
    replica: Replica, received: Received, error: ErrorCode, *, granted: bool = False
) -> vote.VoteResponse:
    """Answer a Vote."""
    partition = vote.VoteResponsePartitionData(
        error_code=error, vote_granted=granted, **_standing(replica)
    )
    topic = vote.VoteResponseTopicData(topic_name=TOPIC, partitions=(partition,))
    endpoints = _leader_at(replica, received, vote.NodeEndpoint)
    return vote.VoteResponse(topics=(topic,), node_endpoints=endpoints)


def begin_response(
    replica: Replica, received: Received, error: ErrorCode
) -> begin.BeginQuorumEpochResponse:
    """Answer a BeginQuorumEpoch."""
    partition = begin.BeginQuorumEpochResponsePartitionData(error_code=error, **_standing(replica))
    topic = begin.BeginQuorumEpochResponseTopicData(topic_name=TOPIC, partitions=(partition,))
    endpoints = _leader_at(replica, received, begin.NodeEndpoint)
    return begin.BeginQuorumEpochResponse(topics=(topic,), node_endpoints=endpoints)


def end_response(
    replica: Replica, received: Received, error: ErrorCode
) -> end.EndQuorumEpochResponse:
    """Answer an EndQuorumEpoch."""
    partition = end.EndQuorumEpochResponsePartitionData(error_code=error, **_standing(replica))
    topic = end.EndQuorumEpochResponseTopicData(topic_name=TOPIC, partitions=(partition,))
    endpoints = _leader_at(replica, received, end.NodeEndpoint)
    return end.EndQuorumEpochResponse(topics=(topic,), node_endpoints=endpoints)


def fetch_response(
    replica: Replica,
    received: Received,
    error: ErrorCode = ErrorCode.NONE,
    *,
    high_watermark: int = -1,
    mismatch: Mismatch | None = None,
) -> fetch.FetchResponse:
    """Answer a Fetch; the driver adds records."""
    diverging, snapshot = mismatch or Mismatch()
    leader = fetch.LeaderIdAndEpoch(leader_id=named_leader(replica), leader_epoch=replica.epoch)
    partition = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=replica.log.start_offset,
        current_leader=leader,
        records=b"",
    )
    if diverging is not None:
        ends = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
        partition = partition.replace(diverging_epoch=ends)
    if snapshot is not None:
        found = fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
        partition = partition.replace(snapshot_id=found)
    topic = fetch.FetchableTopicResponse(
        topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,)
    )
    endpoints = _leader_at(replica, received, fetch.NodeEndpoint)
    return fetch.FetchResponse(responses=(topic,), node_endpoints=endpoints)


def fetch_snapshot_response(
    replica: Replica,
    received: Received,
    error: ErrorCode,
    snapshot_id: fetch_snapshot.SnapshotId,
    size: int = 0,
    position: int = 0,
) -> fetch_snapshot.FetchSnapshotResponse:
    """Answer a FetchSnapshot; the driver adds bytes."""
    leader = fetch_snapshot.LeaderIdAndEpoch(
        leader_id=named_leader(replica), leader_epoch=replica.epoch
    )
    partition = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=PARTITION,
        error_code=error,
        snapshot_id=snapshot_id,
        current_leader=leader,
        size=size,
        position=position,
        unaligned_records=b"",
    )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name=TOPIC, partitions=(partition,))
    endpoints = _leader_at(replica, received, fetch_snapshot.NodeEndpoint)
    return fetch_snapshot.FetchSnapshotResponse(topics=(topic,), node_endpoints=endpoints)


def named_leader(replica: Replica) -> BrokerId:
    """Return whom a response names as the leader.

    One whose endpoints are not known is not named: a Kafka node that has to follow it and does not
    know them either would end itself (rule R40).
    """
    if replica.leader_id is None or not replica.leader_endpoints:
        return NOBODY
    return replica.leader_id


def _standing(replica: Replica) -> dict[str, Any]:
    return {
        "partition_index": PARTITION,
        "leader_id": named_leader(replica),
        "leader_epoch": replica.epoch,
    }


def leader_node(replica: Replica, listener: str) -> Node | None:
    """Return where the leader is reached at a listener."""
    found = endpoint_at(replica.leader_endpoints, listener)
    if found is None or replica.leader_id is None:
        return None
    return Node(replica.leader_id, found.host, found.port)


def _leader_at(replica: Replica, received: Received, endpoint: Any) -> tuple[Any, ...]:
    leader = leader_node(replica, received.listener)
    if leader is None or received.version < _ENDPOINTS_SINCE[received.request.API_KEY]:
        return ()
    return (endpoint(node_id=leader.id, host=leader.host, port=leader.port),)


# Reading a response


class Answer(NamedTuple):
    """What all responses have in common (rule R39)."""

    #: Of the whole response.
    top_error: int
    #: Of the partition.
    error: int
    #: None if it is about another partition, or about none.
    partition: Any | None
    epoch: int
    leader_id: BrokerId | None
    #: As the response says; for the default listener.
    endpoints: tuple[VoterEndpoint, ...]


def read_response(response: Any, default_listener: str) -> Answer:
    """Read who leads, and where, from any response of the quorum."""
    if isinstance(response, update_raft_voter.UpdateRaftVoterResponse):
        return _read_update(response, default_listener)
    topics = response.responses if isinstance(response, fetch.FetchResponse) else response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return Answer(response.error_code, 0, None, -1, None, ())
    partition: Any = topics[0].partitions[0]
    leader = getattr(partition, "current_leader", partition)
    endpoints = tuple(
        VoterEndpoint(default_listener, each.host, each.port)
        for each in response.node_endpoints
        if each.node_id == leader.leader_id
    )
    leader_id = leader.leader_id if leader.leader_id >= 0 else None
    return Answer(
        response.error_code,
        partition.error_code,
        partition,
        leader.leader_epoch,
        leader_id,
        endpoints,
    )


def _read_update(
    response: update_raft_voter.UpdateRaftVoterResponse, default_listener: str
) -> Answer:
    leader = response.current_leader
    endpoints = (VoterEndpoint(default_listener, leader.host, leader.port),) if leader.host else ()
    leader_id = leader.leader_id if leader.leader_id >= 0 else None
    return Answer(0, response.error_code, response, leader.leader_epoch, leader_id, endpoints)
