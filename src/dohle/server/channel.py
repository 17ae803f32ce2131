"""How a broker's code sees the rest of the cluster: an image to read, and a channel to ask by.

Nothing here depends on where the controller is. A broker reads its own image, which is that of some
committed offset, and asks for changes by protocol messages. The controller decides by its own
image, which may be a later one. So a message must contain what its sender knows (epochs, ids),
never something that is to be looked up in the image.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.principal import Principal
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.add_raft_voter import AddRaftVoterResponse
from dohle.protocol.messages.describe_quorum import DescribeQuorumResponse
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from dohle.protocol.response_errors import error_codes_of
from dohle.protocol.schema import Request, Response, VersionRange

R = TypeVar("R", bound=Response)

#: Called with every new image and what changed in it; it returns before the next change is made.
ImageListener = Callable[[ClusterImage, Delta], Awaitable[None]]


class ImageSource(Protocol):
    """The cluster as this node knows it."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record that was read."""

    @property
    def applied_offset(self) -> int:
        """The offset of the image that has taken effect on this node; it may lag behind."""

    @property
    def kraft_version(self) -> int:
        """The ``kraft.version`` in force: it is in control records, not in the image."""

    def subscribe(self, listener: ImageListener) -> None:
        """Call the listener with every change from now on."""


class Client(NamedTuple):
    """The client that sends a request through a broker, and in which version."""

    version: int
    client_id: str
    #: Its address, as numbers.
    host: str
    principal: Principal


class ControllerEndpoint(NamedTuple):
    """Who leads the quorum, and where."""

    node_id: BrokerId
    host: str
    port: int


class ControllerChannel(Protocol):
    """The way to the active controller, in this process or in another."""

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Have the controller decide; return its response once the decision is committed.

        ``version`` is that of the client's request, if a client sent it; by default the newest.
        Requests of one sender are decided in the order in which they were sent. There is always a
        response: it also reports errors of the request as a whole, such as a timeout. Once sent, a
        request is carried out even if nobody waits for the response any more.
        """


class DecidingController(ControllerChannel, Protocol):
    """The controller of this node, which holds clients to their quotas."""

    async def send(
        self,
        request: Request,
        answer: type[R],
        version: int | None = None,
        *,
        client: Client | None = None,
    ) -> R:
        """Decide, as for any other, or for a client."""


class ForwardingChannel(ControllerChannel, Protocol):
    """The same for requests of clients, too."""

    async def forward(self, client: Client, request: Request, answer: type[R]) -> R:
        """Have the controller decide about a client's request, as ``send`` does."""

    def controller_range(self, api_key: int, /) -> VersionRange | None:
        """Return the versions of an API that the controller serves; None if that is not known."""


class ClientGuard(Protocol):
    """Stands before the controller of this node, if clients may not do everything."""

    async def serve(
        self,
        client: Client,
        request: Request,
        send: Callable[[Request], Coroutine[Any, Any, Response]],
    ) -> Response:
        """Have the controller decide about as much of a request as its sender may ask for."""


async def ask_for(
    client: Client,
    request: Request,
    answer: type[R],
    controller: DecidingController,
    guard: ClientGuard | None,
) -> R:
    """Have the controller of this node decide about a client's request."""

    async def send(allowed: Request) -> R:
        return await controller.send(allowed, answer, client.version, client=client)

    if guard is None:
        return await send(request)
    reply = await guard.serve(client, request, send)
    assert isinstance(reply, answer), "a guard answers what was asked"
    return reply


class LocalController(NamedTuple):
    """The forwarding channel to the controller of this node, where it is the only one."""

    controller: DecidingController
    guard: ClientGuard | None = None

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Have it decide."""
        return await self.controller.send(request, answer, version)

    async def forward(self, client: Client, request: Request, answer: type[R]) -> R:
        """Have it decide."""
        return await ask_for(client, request, answer, self.controller, self.guard)

    def controller_range(self, api_key: int, /) -> VersionRange | None:
        """Return None: it serves the same versions as this node."""
        return None


class ControllerChannels(NamedTuple):
    """The ways from a broker to the active controller: one does not wait for another (A12)."""

    #: What clients ask, and what the broker asks on their behalf: topics, producer ids.
    forwarding: ForwardingChannel
    #: Registration and heartbeats.
    heartbeat: ControllerChannel
    alter_partition: ControllerChannel
    directory_assignments: ControllerChannel

    @classmethod
    def to(
        cls, controller: DecidingController, guard: ClientGuard | None = None
    ) -> ControllerChannels:
        """Return the ways to the controller of this node, where it is the only one."""
        local = LocalController(controller, guard)
        return cls(local, controller, controller, controller)


def is_not_controllers(reply: Response) -> bool:
    """Tell whether a response says, in any of its parts, that another controller is active."""
    code = ErrorCode.NOT_CONTROLLER
    if isinstance(reply, DescribeQuorumResponse | AddRaftVoterResponse | RemoveRaftVoterResponse):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code in error_codes_of(type(reply))(reply)
