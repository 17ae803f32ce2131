"""How the rooms of a broker see the rest of the cluster: an image to read, and a channel to ask by.

Nothing here says where the controller is. A broker reads the image it has, which is that of some
committed offset, and asks for changes by protocol messages; what it asks for is decided upon the
controller's image, which may be a later one. Whoever sends a message must therefore put into it
what it knows (epochs, ids), never a function of the image.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

#: Called with every new image and what changed in it; the next change waits until it returns.
ImageListener = Callable[[ClusterImage, Delta], Awaitable[None]]


class ImageSource(Protocol):
    """The cluster as this node knows it."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record that was read."""

    def subscribe(self, listener: ImageListener) -> None:
        """Tell the listener of every change from now on."""


class ControllerChannel(Protocol):
    """The way to the active controller, in this process or in another."""

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Have the controller decide; return its response once that is committed.

        ``version`` is the one the request came in, where a client sent it; else it is the newest.
        Requests of one sender are decided in the order in which they were sent. There is always a
        response: an error of the request as a whole, such as a timeout, is told in it. Once sent,
        a request is carried out even if nobody waits for the response any more.
        """
