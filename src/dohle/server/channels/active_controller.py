"""The active controller, for a broker: what its code asks, and what clients ask through it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Generic

from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.decision import ApiError
from dohle.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from dohle.protocol.messages.envelope import EnvelopeResponse
from dohle.protocol.schema import Request, Response, VersionRange
from dohle.server.channel import (
    Client,
    ClientGuard,
    DecidingController,
    R,
    ask_for,
    is_not_controllers,
)
from dohle.server.channels.envelope import unwrap, wrap
from dohle.server.channels.link import ControllerLink, NotController
from dohle.server.net.outcome import CloseConnection
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.commands import COMMANDS
from dohle.server.quorum.voter_changes import VoterChange, voter_change_failed

logger = logging.getLogger("dohle.server")


class ActiveController:
    """The channel to the active controller over a link."""

    def __init__(
        self, link: ControllerLink, turns: Turns, guard: ClientGuard | None = None
    ) -> None:
        """``guard`` is for what clients ask of the controller of this node."""
        self._link = link
        self._turns = turns
        self._guard = guard

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Have the controller decide; REQUEST_TIMED_OUT if it did not answer in time."""
        try:
            return await self._link.ask(_Own(request, answer, version))
        except KafkaError as error:
            return await self._failed(request, answer, ApiError.of(error))

    async def forward(self, client: Client, request: Request, answer: type[R]) -> R:
        """Have the controller decide about a client's request, in the client's name (A11)."""
        try:
            found = await self._link.ask(_Forwarded(client, request, answer, self._guard))
        except KafkaError as error:
            return await self._failed(request, answer, ApiError.of(error))
        if not isinstance(found, ErrorCode):
            return found
        if found is ErrorCode.UNSUPPORTED_VERSION:
            # The client negotiates anew, and is told what this controller understands.
            raise CloseConnection("the controller does not know this request or its version")
        logger.warning(
            "a %s that was forwarded to the controller failed: %s",
            type(request).__name__,
            found.name,
        )
        return await self._failed(request, answer, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, ""))

    async def _failed(self, request: Request, answer: type[R], error: ApiError) -> R:
        """Return the response to a request that failed as a whole."""
        response: Response
        if isinstance(request, DescribeQuorumRequest):
            response = DescribeQuorumResponse(
                error_code=error.code, error_message=error.message or ""
            )
        elif isinstance(request, VoterChange):
            response = voter_change_failed(request, error)
        else:
            steps = COMMANDS[type(request)].fail(request, error)
            response = await Slices(self._turns).run(steps)
        assert isinstance(response, answer), "a failure answers its own request"
        return response

    def controller_range(self, api_key: int, /) -> VersionRange | None:
        """Return the versions of an API that the controller serves; None if that is not known."""
        return self._link.controller_range(api_key)


@dataclass(frozen=True, slots=True)
class _Own(Generic[R]):
    """A request of this broker."""

    request: Request
    answer: type[R]
    version: int | None

    async def locally(self, controller: DecidingController) -> R:
        """Ask the controller of this node."""
        return _from_controller(await controller.send(self.request, self.answer, self.version))

    async def remotely(self, connection: Connection) -> R:
        """Ask another node, in the highest version that both know."""
        reply = await connection.request(self.request, self.answer, version_max=self.version)
        return _from_controller(reply)


@dataclass(frozen=True, slots=True)
class _Forwarded(Generic[R]):
    """A request of a client."""

    client: Client
    request: Request
    answer: type[R]
    guard: ClientGuard | None

    async def locally(self, controller: DecidingController) -> R | ErrorCode:
        """Ask the controller of this node."""
        reply = await ask_for(self.client, self.request, self.answer, controller, self.guard)
        return _from_controller(reply)

    async def remotely(self, connection: Connection) -> R | ErrorCode:
        """Ask another node, in an envelope."""
        reply = await connection.request(wrap(self.client, self.request), EnvelopeResponse)
        return unwrap(self.client, _from_controller(reply), self.answer)


def _from_controller(reply: R) -> R:
    """Return a response if it is that of the active controller."""
    if is_not_controllers(reply):
        raise NotController
    return reply
