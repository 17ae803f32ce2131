"""DescribeCluster (60) v0-2, DescribeQuorum (55) v0-2, UpdateFeatures (57) v0-2.

- DescribeCluster: the brokers that can be reached by the client's listener, and who controls them.
  v1: endpoints of controllers are asked of controllers, so here 114 (v0: 42). v2: fenced brokers
  too, if asked. Whoever may connect may do everything, and is told so if they ask.
- DescribeQuorum: this node is the leader and the only voter, so everything is committed. v1 when
  the voter was last heard of and caught up (now), v2 where controllers listen.
  Any partition but that of the metadata log: 3 for every partition of the request.
- UpdateFeatures: all or nothing, and the error counts for the request as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.uuid import ZERO_UUID
from dohle.metadata import queries
from dohle.metadata.controller import update_features
from dohle.metadata.decision import ApiError
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from dohle.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from dohle.server.net.dispatch import Handler, serves
from dohle.server.quorum.metadata_log import METADATA_PARTITION

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext

#: Create, alter, describe, cluster action, describe and alter configs, idempotent write: one bit
#: each, at the operation's code in Kafka's ACLs.
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))

_TELLS_NODES = 2


def handle_describe_cluster(
    broker: BrokerServer, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Tell who the brokers are."""
    response = queries.describe_cluster(
        broker.image,
        request,
        version=context.version,
        listener=context.connection.listener,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
    )
    if request.include_cluster_authorized_operations and not response.error_code:
        response = response.replace(cluster_authorized_operations=CLUSTER_OPERATIONS)
    return response


def handle_describe_quorum(
    broker: BrokerServer, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Tell how the controllers are doing."""
    asked = [
        (topic.topic_name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
    ]
    if asked != [METADATA_PARTITION] or len(request.topics) != 1:
        return _not_the_quorum(request)
    metadata_log, now_ms = broker.controller.log, broker.clock.now_ms()
    voter = ReplicaState(
        replica_id=broker.node_id,
        # At kraft.version 0 voters are known by their ids alone.
        replica_directory_id=ZERO_UUID,
        log_end_offset=metadata_log.log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = DescribeQuorumResponsePartitionData(
        partition_index=METADATA_PARTITION.partition,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=metadata_log.epoch,
        high_watermark=metadata_log.log.high_watermark,
        current_voters=(voter,),
    )
    topic = DescribeQuorumResponseTopicData(
        topic_name=METADATA_PARTITION.topic, partitions=(partition,)
    )
    return DescribeQuorumResponse(
        error_message="",
        topics=(topic,),
        nodes=(_node(broker),) if context.version >= _TELLS_NODES else (),
    )


def _not_the_quorum(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_message="",
        topics=tuple(
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    DescribeQuorumResponsePartitionData(
                        partition_index=one.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=f"the quorum is that of {METADATA_PARTITION} alone",
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _node(broker: BrokerServer) -> Node:
    return Node(
        node_id=broker.node_id,
        listeners=tuple(
            Listener(name=one.name, host=one.host or "localhost", port=one.port)
            for one in broker.config.advertised_controller_listeners
        ),
    )


async def handle_update_features(
    broker: BrokerServer, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Raise or lower the levels of features."""
    version = context.version
    try:
        return await broker.controller.submit(
            lambda image, controller: update_features(image, request, controller, version=version)
        )
    except KafkaError as failure:
        error = ApiError.of(failure)
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_CLUSTER, handle_describe_cluster),
    serves(ApiKey.DESCRIBE_QUORUM, handle_describe_quorum),
    serves(ApiKey.UPDATE_FEATURES, handle_update_features),
)
