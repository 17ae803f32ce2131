"""What the nodes of a quorum ask of each other, on the controllers' listeners.

Vote (52) v0-2, BeginQuorumEpoch (53) v0-1, EndQuorumEpoch (54) v0-1, Fetch (1) of the metadata log,
FetchSnapshot (59) v0-1; and what changes its voters: AddRaftVoter (80) v0-1, RemoveRaftVoter (81)
v0, UpdateRaftVoter (82) v0. Each is passed to the raft machine of this node, which checks and
answers it, at once or later.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import TYPE_CHECKING

from dohle.protocol.apis import ApiKey
from dohle.protocol.schema import Request, Response
from dohle.server.handlers.fetch import fetch_kind
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext

_SERVED = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)

#: Takes a request, its version and the listener that it came in on.
TakeRequest = Callable[[Request, int, str], Future[Response]]


def raft_handlers(take: TakeRequest) -> dict[ApiKey, Handler]:
    """Return the handlers that pass requests to the quorum."""

    def handle(server: Frontend, context: RequestContext, request: Request) -> Future[Response]:
        return take(request, context.version, context.connection.listener)

    # A node with both roles counts the fetches of its quorum with those of its followers.
    return dict(
        serves(key, handle, kind=fetch_kind if key is ApiKey.FETCH else None) for key in _SERVED
    )
