"""How a broker's code sees the rest of the cluster: an image to read, and a channel to ask by.

Nothing here depends on where the controller is. A broker reads its own image, which is that of some
committed offset, and asks for changes by protocol messages. The controller decides by its own
image, which may be a later one. So a message must contain what its sender knows (epochs, ids),
never something that is to be looked up in the image.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

#: Called with every new image and what changed in it; it returns before the next change is made.
ImageListener = Callable[[ClusterImage, Delta], Awaitable[None]]


class ImageSource(Protocol):
    """The cluster as this node knows it."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record that was read."""

    @property
    def kraft_version(self) -> int:
        """The level of the quorum: the log has it in control records, which no image knows."""

    def subscribe(self, listener: ImageListener) -> None:
        """Call the listener with every change from now on."""


class ControllerChannel(Protocol):
    """The way to the active controller, in this process or in another."""

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Have the controller decide; return its response once the decision is committed.

        ``version`` is that of the client's request, if a client sent it; by default the newest.
        Requests of one sender are decided in the order in which they were sent. There is always a
        response: it also reports errors of the request as a whole, such as a timeout. Once sent, a
        request is carried out even if nobody waits for the response any more.
        """
