"""DescribeCluster (60) v0-2, DescribeQuorum (55) v0-2, UpdateFeatures (57) v0-2.

- DescribeCluster: the brokers that have the client's listener, and the controller. v1: a request
  for the endpoints of controllers must go to a controller, so a broker answers 114 (v0: 42). v2:
  fenced brokers too, if asked for. There are no ACLs: every operation is allowed. On a controller's
  listener it is the other way round: the controllers with their addresses, and no brokers.
- DescribeQuorum: the controller describes how far the voters are. v1 adds when each last fetched
  and was last caught up, v2 the endpoints of the voters that listen for others.
  If any partition other than the metadata log's is asked for, all get 3.
- UpdateFeatures: all or nothing, with one error for the request as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.ids import TopicName
from dohle.metadata import queries
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from dohle.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from dohle.server.net.handler import Handler, serves
from dohle.storage.directory.partition_dirs import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

#: Create, alter, describe, cluster action, describe and alter configs, idempotent write: one bit
#: each, at the operation's code in Kafka's ACLs.
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))

_THE_QUORUM = DescribeQuorumRequest(
    topics=(
        DescribeQuorumRequestTopicData(
            topic_name=TopicName(CLUSTER_METADATA_TOPIC),
            partitions=(DescribeQuorumRequestPartitionData(partition_index=0),),
        ),
    )
)


def handle_describe_cluster(
    broker: BrokerServer, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the brokers of the cluster."""
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


async def handle_describe_controllers(
    broker: BrokerServer, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the controllers of the cluster, at the listener that the client uses."""
    quorum = await broker.channel.send(_THE_QUORUM, DescribeQuorumResponse)
    response = queries.describe_controllers(
        quorum,
        request,
        version=context.version,
        listener=context.connection.listener,
        cluster_id=broker.cluster_id,
    )
    if request.include_cluster_authorized_operations and not response.error_code:
        response = response.replace(cluster_authorized_operations=CLUSTER_OPERATIONS)
    return response


async def handle_describe_quorum(
    broker: BrokerServer, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe how far each voter of the quorum is."""
    return await broker.channel.send(request, DescribeQuorumResponse, context.version)


async def handle_update_features(
    broker: BrokerServer, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Raise or lower the levels of features."""
    return await broker.channel.send(request, UpdateFeaturesResponse, context.version)


DESCRIBE_CONTROLLERS = serves(ApiKey.DESCRIBE_CLUSTER, handle_describe_controllers)
HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_CLUSTER, handle_describe_cluster),
    serves(ApiKey.DESCRIBE_QUORUM, handle_describe_quorum),
    serves(ApiKey.UPDATE_FEATURES, handle_update_features),
)
