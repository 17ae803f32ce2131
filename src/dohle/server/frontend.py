"""What handlers work with whose API is served by brokers and by controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId
from dohle.metadata.image import ClusterImage
from dohle.protocol.schema import Request, VersionRange
from dohle.security.authorizer import Authorizer
from dohle.server.channel import Client, ImageSource, R
from dohle.server.net.connection import Connection
from dohle.server.net.handler import RequestContext
from dohle.server.net.server import Server


class Frontend(Server, Protocol):
    """A broker, or a controller."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration of this node."""

    @property
    def node_id(self) -> BrokerId:
        """The id of this node."""

    @property
    def is_controller(self) -> bool:
        """Whether it decides, also about other nodes."""

    @property
    def cluster_id(self) -> str:
        """The id of its cluster."""

    @property
    def authorizer(self) -> Authorizer | None:
        """Who decides what clients may do; None: they may do everything."""

    @property
    def images(self) -> ImageSource:
        """The cluster as this node knows it."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last change that this node has read."""

    def ask_controller(
        self, context: RequestContext, request: Request, answer: type[R]
    ) -> Awaitable[R]:
        """Have the active controller decide about the request of a client."""

    @property
    def check_listeners(self) -> Callable[[Mapping[str, str]], None]:
        """Refuses settings that a listener of this node could not work with."""

    def controller_range(self, api_key: int) -> VersionRange | None:
        """Return the versions of an API that the controller serves; None if that is not known."""


async def muting(context: RequestContext, answer: Awaitable[R]) -> R:
    """Return the controller's answer; a client that has to wait is muted for that long.

    The client behind a broker is muted there.
    """
    response = await answer
    throttle_ms: int = getattr(response, "throttle_time_ms", 0)
    if throttle_ms and isinstance(context.connection, Connection):
        context.connection.mute(throttle_ms / 1000)
    return response


def client_of(context: RequestContext) -> Client:
    """Return who sends a request."""
    host = context.connection.peer.rpartition(":")[0].partition("%")[0]
    return Client(context.version, context.client_id, host, context.connection.principal)
