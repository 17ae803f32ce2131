"""Where replicas are and who leads: for tools that manage a cluster.

ElectLeaders (43) v0-2, AlterPartitionReassignments (45) v0-1, ListPartitionReassignments (46) v0,
UnregisterBroker (64) v0.

- The active controller decides about all of them, and lists what goes on: a client that asks twice
  does not hear first of what is new and then of what was before. A controller reads the list off
  its own image, as in Kafka.
- A reassignment to the brokers that have the replicas already is complete at once.
- A broker is unregistered if it is gone. This one runs, and is not: 42, where Kafka would comply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from dohle.server.net.slices import Slices

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext


async def handle_elect_leaders(
    server: Frontend, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Have leaders elected."""
    return await server.ask_controller(context, request, ElectLeadersResponse)


async def handle_alter_partition_reassignments(
    server: Frontend, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or end reassignments."""
    return await server.ask_controller(context, request, AlterPartitionReassignmentsResponse)


async def handle_list_partition_reassignments(
    server: Frontend, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the reassignments that are going on."""
    if server.is_controller:
        steps = list_partition_reassignments(server.image, request)
        return await Slices(server.turns).run(steps)
    return await server.ask_controller(context, request, ListPartitionReassignmentsResponse)


async def handle_unregister_broker(
    server: Frontend, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Remove a broker that will not come back."""
    return await server.ask_controller(context, request, UnregisterBrokerResponse)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.ELECT_LEADERS, handle_elect_leaders),
    serves(ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle_alter_partition_reassignments),
    serves(ApiKey.LIST_PARTITION_REASSIGNMENTS, handle_list_partition_reassignments),
    serves(ApiKey.UNREGISTER_BROKER, handle_unregister_broker),
)
