"""The cluster as a whole: described, and changed.

DescribeCluster (60) v0-2, DescribeQuorum (55) v0-2, UpdateFeatures (57) v0-2; on brokers, which
send them on to the controller, also AddRaftVoter (80) v0-1 and RemoveRaftVoter (81) v0.

- DescribeCluster: the brokers that have the client's listener, and the controller. v1: a request
  for the endpoints of controllers must go to a controller, so a broker answers 114 (v0: 42). v2:
  fenced brokers too, if asked for. There are no ACLs: every operation is allowed. On a controller's
  listener it is the other way round: the controllers with their addresses, and no brokers; from
  metadata.version 15 on, else 35 (KIP-919).
- DescribeQuorum: the controller describes how far the voters are. v1 adds when each last fetched
  and was last caught up, v2 the endpoints of the voters that listen for others.
  If any partition other than the metadata log's is asked for, all get 3.
- UpdateFeatures: all or nothing, with one error for the request as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata import queries
from dohle.metadata.metadata_version import supports_controller_registration
from dohle.protocol.apis import ApiKey, find_api
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
    from dohle.protocol.schema import Request, Response
    from dohle.server.controller_apis import ControllerApis
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext

#: Create, alter, describe, cluster action, describe and alter configs, idempotent write: one bit
#: each, at the operation's code in Kafka's ACLs.
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))

_NOT_DIRECTLY = (
    "Direct-to-controller communication is not supported with the current MetadataVersion."
)

_THE_QUORUM = DescribeQuorumRequest(
    topics=(
        DescribeQuorumRequestTopicData(
            topic_name=TopicName(CLUSTER_METADATA_TOPIC),
            partitions=(DescribeQuorumRequestPartitionData(partition_index=0),),
        ),
    )
)


def handle_describe_cluster(
    server: Frontend, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the brokers of the cluster."""
    response = queries.describe_cluster(
        server.image,
        request,
        version=context.version,
        listener=context.connection.listener,
        cluster_id=server.cluster_id,
        controller_id=server.node_id,
    )
    if request.include_cluster_authorized_operations and not response.error_code:
        response = response.replace(cluster_authorized_operations=CLUSTER_OPERATIONS)
    return response


async def handle_describe_controllers(
    server: ControllerApis, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the controllers of the cluster, at the listener that the client uses.

    Each of several has registered, so that any of them knows all (A14); one that is alone need not.
    Before controllers register at all, Kafka's do not describe themselves either.
    """
    level = server.image.metadata_version
    if level is None or not supports_controller_registration(level):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=_NOT_DIRECTLY
        )
    registered = sorted(server.image.controllers.items())
    controllers: list[tuple[BrokerId, Sequence[queries.ListenerAddress]]]
    if registered:
        leader_id = server.find_leader_id()
        controllers = [(BrokerId(id), each.end_points) for id, each in registered]
    else:
        at_controller = context._replace(version=DescribeQuorumRequest.VERSIONS.highest)
        quorum = await server.ask_controller(at_controller, _THE_QUORUM, DescribeQuorumResponse)
        partition = quorum.topics[0].partitions[0]
        if partition.error_code:
            return DescribeClusterResponse(error_code=partition.error_code)
        leader_id = partition.leader_id
        controllers = [(node.node_id, node.listeners) for node in quorum.nodes]
    response = queries.describe_controllers(
        controllers,
        request,
        version=context.version,
        listener=context.connection.listener,
        cluster_id=server.cluster_id,
        leader_id=BrokerId(-1) if leader_id is None else leader_id,
    )
    if request.include_cluster_authorized_operations and not response.error_code:
        response = response.replace(cluster_authorized_operations=CLUSTER_OPERATIONS)
    return response


async def handle_describe_quorum(
    server: Frontend, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe how far each voter of the quorum is."""
    return await server.ask_controller(context, request, DescribeQuorumResponse)


async def handle_update_features(
    server: Frontend, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Raise or lower the levels of features."""
    return await server.ask_controller(context, request, UpdateFeaturesResponse)


async def handle_voter_change(
    server: Frontend, context: RequestContext, request: Request
) -> Response:
    """Have the quorum add or remove a voter."""
    return await server.ask_controller(context, request, find_api(request.API_KEY).response())


DESCRIBE_CONTROLLERS = serves(ApiKey.DESCRIBE_CLUSTER, handle_describe_controllers)
HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_CLUSTER, handle_describe_cluster),
    serves(ApiKey.DESCRIBE_QUORUM, handle_describe_quorum),
    serves(ApiKey.UPDATE_FEATURES, handle_update_features),
    serves(ApiKey.ADD_RAFT_VOTER, handle_voter_change),
    serves(ApiKey.REMOVE_RAFT_VOTER, handle_voter_change),
)
