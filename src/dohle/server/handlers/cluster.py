"""DescribeCluster (60) v0-2, DescribeQuorum (55) v0-2, UpdateFeatures (57) v0-2.

- DescribeCluster: the brokers that can be reached by the client's listener, and who controls them.
  v1: endpoints of controllers are asked of controllers, so here 114 (v0: 42). v2: fenced brokers
  too, if asked. Whoever may connect may do everything, and is told so if they ask.
- DescribeQuorum: the controller tells how far the voters are. v1 when each was last heard of and
  caught up, v2 where they listen for each other: nowhere yet.
  Any partition but that of the metadata log: 3 for every partition of the request.
- UpdateFeatures: all or nothing, and the error counts for the request as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.metadata import queries
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from dohle.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from dohle.server.net.dispatch import Handler, serves

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext

#: Create, alter, describe, cluster action, describe and alter configs, idempotent write: one bit
#: each, at the operation's code in Kafka's ACLs.
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


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


async def handle_describe_quorum(
    broker: BrokerServer, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Tell how the controllers are doing."""
    return await broker.channel.send(request, DescribeQuorumResponse, context.version)


async def handle_update_features(
    broker: BrokerServer, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Raise or lower the levels of features."""
    return await broker.channel.send(request, UpdateFeaturesResponse, context.version)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_CLUSTER, handle_describe_cluster),
    serves(ApiKey.DESCRIBE_QUORUM, handle_describe_quorum),
    serves(ApiKey.UPDATE_FEATURES, handle_update_features),
)
