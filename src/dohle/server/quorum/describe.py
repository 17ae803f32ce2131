"""DescribeQuorum as a node of the quorum answers it.

If any partition other than the metadata log's is asked for, every partition of the request gets
UNKNOWN_TOPIC_OR_PARTITION. Only the leader knows how far the others are: of any other node the
partition's error is NOT_LEADER_OR_FOLLOWER. From v2 on the response has the voters' directories and
endpoints: those at which they listen for others, so none of a node without a controller listener.
"""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from dohle.server.quorum.metadata_log import METADATA_PARTITION
from dohle.server.quorum.quorum import QuorumProgress, VoterProgress

_TELLS_NODES = 2


def describe_quorum(
    progress: QuorumProgress | None, request: DescribeQuorumRequest, version: int
) -> PlainSteps[DescribeQuorumResponse]:
    """Describe how far each voter of the quorum is; ``progress`` is what a leader knows."""
    topics = request.topics
    is_the_quorum = (
        len(topics) == 1
        and len(topics[0].partitions) == 1
        and (topics[0].topic_name, topics[0].partitions[0].partition_index) == METADATA_PARTITION
    )
    if not is_the_quorum:
        return (yield from _not_the_quorum(request))
    if progress is None:
        return _described(
            DescribeQuorumResponsePartitionData(
                partition_index=METADATA_PARTITION.partition,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                error_message="this node does not lead the quorum",
            )
        )
    has_directories = version >= _TELLS_NODES
    partition = DescribeQuorumResponsePartitionData(
        partition_index=METADATA_PARTITION.partition,
        error_message="",
        leader_id=progress.leader_id,
        leader_epoch=progress.epoch,
        high_watermark=progress.high_watermark,
        current_voters=tuple(_replica(each, has_directories) for each in progress.voters),
        observers=tuple(_replica(each, has_directories) for each in progress.observers),
    )
    nodes = tuple(
        Node(
            node_id=each.voter.id,
            listeners=tuple(Listener(name=n, host=h, port=p) for n, h, p in each.voter.endpoints),
        )
        for each in progress.voters
    )
    return _described(partition, nodes if version >= _TELLS_NODES else ())


def _described(
    partition: DescribeQuorumResponsePartitionData, nodes: tuple[Node, ...] = ()
) -> DescribeQuorumResponse:
    topic = DescribeQuorumResponseTopicData(
        topic_name=METADATA_PARTITION.topic, partitions=(partition,)
    )
    return DescribeQuorumResponse(error_message="", topics=(topic,), nodes=nodes)


def _replica(progress: VoterProgress, has_directory: bool) -> ReplicaState:
    return ReplicaState(
        replica_id=progress.voter.id,
        replica_directory_id=progress.voter.directory_id if has_directory else ZERO_UUID,
        log_end_offset=progress.log_end_offset,
        last_fetch_timestamp=progress.last_fetch_ms,
        last_caught_up_timestamp=progress.last_caught_up_ms,
    )


def _not_the_quorum(request: DescribeQuorumRequest) -> PlainSteps[DescribeQuorumResponse]:
    def partition(asked: DescribeQuorumRequestPartitionData) -> DescribeQuorumResponsePartitionData:
        return DescribeQuorumResponsePartitionData(
            partition_index=asked.partition_index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only {METADATA_PARTITION} has a quorum: ask for that",
        )

    def topic(asked: DescribeQuorumRequestTopicData) -> PlainSteps[DescribeQuorumResponseTopicData]:
        partitions = yield from mapped(partition, asked.partitions)
        return DescribeQuorumResponseTopicData(topic_name=asked.topic_name, partitions=partitions)

    topics = yield from mapped_steps(topic, request.topics)
    return DescribeQuorumResponse(error_message="", topics=topics)
