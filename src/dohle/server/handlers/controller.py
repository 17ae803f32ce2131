"""What brokers, and other controllers, ask of the active controller.

- AlterPartition (56) v2-3, BrokerRegistration (62) v0-4, BrokerHeartbeat (63) v0-1,
  AllocateProducerIds (67) v0, ControllerRegistration (70) v0, AssignReplicasToDirs (73) v0.
- The active controller decides (``dohle.metadata``); another one answers 41.
- Only controllers serve them, on their own listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.protocol.apis import ApiKey, find_api
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.protocol.schema import Request, Response
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext


async def handle(server: Frontend, context: RequestContext, request: Request) -> Response:
    """Have the controller decide."""
    return await server.ask_controller(context, request, find_api(request.API_KEY).response())


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = tuple(
    serves(key, handle)
    for key in (
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    )
)
