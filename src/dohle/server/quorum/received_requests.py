"""Requests of other nodes that the raft machine has not answered yet.

The machine knows each by a number. Whoever waits for an answer holds a future; if it is cancelled,
because the connection was closed, the machine is told.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable

from dohle.protocol.schema import Request, Response
from dohle.raft.events import Abandoned, Received
from dohle.server.net.outcome import CloseConnection

#: Every other node has one or two at a time; what is beyond that is no quorum.
_WAITING_MAX = 1_000


class ReceivedRequests:
    """The incoming side of a node of the quorum."""

    def __init__(
        self, loop: AbstractEventLoop, post: Callable[[Received | Abandoned], None]
    ) -> None:
        self._loop = loop
        self._post = post
        self._waiting: dict[int, Future[Response]] = {}
        self._last_token = 0

    def take(self, request: Request, version: int, listener: str) -> Future[Response]:
        """Pass a request to the machine, and return what its answer will be in."""
        if len(self._waiting) >= _WAITING_MAX:
            raise CloseConnection(f"{_WAITING_MAX} requests of the quorum wait for their answers")
        self._last_token += 1
        token = self._last_token
        answer: Future[Response] = self._loop.create_future()
        self._waiting[token] = answer

        def done(answer: Future[Response]) -> None:
            if self._waiting.pop(token, None) is not None and answer.cancelled():
                self._post(Abandoned(token))

        answer.add_done_callback(done)
        self._post(Received(token, request, version, listener.upper()))
        return answer

    def answer(self, token: int, response: Response) -> None:
        """Answer a request, if anybody still waits."""
        answer = self._waiting.get(token)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def is_waiting(self, token: int) -> bool:
        """Tell whether anybody waits for this answer."""
        return token in self._waiting

    def close(self) -> None:
        """Answer nobody any more: the connections are closed."""
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(CloseConnection("the quorum of this node has stopped"))
