"""Where replicas are and who leads: for tools that manage a cluster.

ElectLeaders (43) v0-2, AlterPartitionReassignments (45) v0-1, ListPartitionReassignments (46) v0,
UnregisterBroker (64) v0.

- The controller decides about all of them but the list, which is read off the image.
- A reassignment to the brokers that have the replicas already is complete at once.
- A broker is unregistered if it is gone. This one runs, and is not: 42, where Kafka would comply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.steps import PlainSteps
from dohle.metadata.reassignments import list_partition_reassignments
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from dohle.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from dohle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext


async def handle_elect_leaders(
    broker: BrokerServer, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Have leaders elected."""
    return await broker.channel.send(request, ElectLeadersResponse, context.version)


async def handle_alter_partition_reassignments(
    broker: BrokerServer, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or end reassignments."""
    return await broker.channel.send(request, AlterPartitionReassignmentsResponse, context.version)


def handle_list_partition_reassignments(
    broker: BrokerServer, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> PlainSteps[ListPartitionReassignmentsResponse]:
    """Return the reassignments that are going on."""
    return list_partition_reassignments(broker.image, request)


async def handle_unregister_broker(
    broker: BrokerServer, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Remove a broker that will not come back."""
    return await broker.channel.send(request, UnregisterBrokerResponse, context.version)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.ELECT_LEADERS, handle_elect_leaders),
    serves(ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle_alter_partition_reassignments),
    serves(ApiKey.LIST_PARTITION_REASSIGNMENTS, handle_list_partition_reassignments),
    serves(ApiKey.UNREGISTER_BROKER, handle_unregister_broker),
)
