"""Requests to the other nodes of the quorum: a connection to each, one request on it at a time.

A request waits while the one before it is on its way, or while the node could not be reached a
moment ago (50 to 500 ms, growing); all of that within its own time. Whatever happens, each request
has exactly one outcome. Nothing is tried twice: the quorum decides what to ask next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from dohle.client.errors import ConnectionClosed, TimedOut
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import Host
from dohle.core.ids import BrokerId
from dohle.protocol.apis import find_api
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.schema import Request, Response
from dohle.raft.effects import Send
from dohle.raft.events import Answered, Unanswered
from dohle.raft.wire import in_version
from dohle.security.client import PLAINTEXT, ClientSecurity
from dohle.server.links import LinkSettings, NodeLink

logger = logging.getLogger("dohle.server")

#: Requests to one node that may wait for their turn: the quorum has at most one or two.
_WAITING_MAX = 8
#: A Fetch returns at most 8 MiB, or one batch if that is larger.
_RESPONSE_BYTES_MAX = 32 * 1024 * 1024


class _Waiting(NamedTuple):
    """A request that is not sent yet."""

    send: Send
    deadline_s: float


class Peers:
    """The outgoing side of a node of the quorum."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: Host,
        node_id: BrokerId,
        request_timeout_ms: int,
        on_outcome: Callable[[Answered | Unanswered], None],
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self._loop = loop
        self._on_outcome = on_outcome
        self._timeout_s = request_timeout_ms / 1000
        self._host = host
        self._settings = LinkSettings(
            f"raft-client-{node_id}",
            request_timeout_ms,
            request_timeout_ms,
            _RESPONSE_BYTES_MAX,
            security=security,
        )
        self._peers: dict[BrokerId, _Peer] = {}
        #: Why each could not be reached the last time, for as long as none is.
        self._reasons: dict[BrokerId, str] = {}

    def send(self, send: Send) -> None:
        """Send a request when it is its turn; its outcome is told later."""
        peer = self._peers.get(send.node.id)
        if peer is None:
            link = NodeLink(self._loop, self._host, self._settings)
            peer = self._peers[send.node.id] = _Peer(self._loop, link, self._tell)
        peer.add(_Waiting(send, self._loop.time() + self._timeout_s))

    def heard(self) -> None:
        """Take note that another node can reach this one, so that it is not alone."""
        self._reasons.clear()

    def unheard(self) -> str:
        """Return why the others were not reached, if none was heard of since."""
        return "; ".join(reason for _, reason in sorted(self._reasons.items()))

    def _tell(self, waiting: _Waiting, outcome: Response | KafkaError) -> None:
        correlation_id = waiting.send.correlation_id
        if isinstance(outcome, Response):
            self.heard()
            self._on_outcome(Answered(correlation_id, outcome))
        else:
            self._reasons[waiting.send.node.id] = str(outcome.args[0])
            is_lost = isinstance(outcome, ConnectionClosed)
            code = ErrorCode.BROKER_NOT_AVAILABLE if is_lost else outcome.code
            self._on_outcome(Unanswered(correlation_id, code))

    async def close(self) -> None:
        """Close all connections; no outcome is told any more."""
        self._on_outcome = lambda outcome: None
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.close() for peer in peers.values()))


class _Peer:
    """One other node: the requests to it, one after the other."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: NodeLink,
        tell: Callable[[_Waiting, Response | KafkaError], None],
    ) -> None:
        self._loop = loop
        self._link = link
        self._tell = tell
        self._waiting: deque[_Waiting] = deque()
        self._working: asyncio.Task[None] | None = None

    def add(self, waiting: _Waiting) -> None:
        """Send a request behind those that wait."""
        self._waiting.append(waiting)
        if len(self._waiting) > _WAITING_MAX:
            # The oldest is the least likely to be of interest still.
            self._tell(self._waiting.popleft(), TimedOut("too many requests wait for their turn"))
        if self._working is None:
            self._working = self._loop.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            self._tell(waiting, await self._outcome(waiting))
        self._working = None

    async def _outcome(self, waiting: _Waiting) -> Response | KafkaError:
        request = waiting.send.request
        address = Address(*waiting.send.node[1:])
        try:
            async with asyncio.timeout_at(waiting.deadline_s):
                connection = await self._link.connect(address)
                left_ms = (waiting.deadline_s - self._loop.time()) * 1000
                return await _ask(connection, request, max(round(left_ms), 1))
        except TimeoutError:
            self._link.cut()
            return TimedOut(f"{address} did not answer in time")
        except KafkaError as error:
            if isinstance(error, TimedOut | ConnectionClosed):
                self._link.cut()
            return error
        except Exception:
            # Whatever it was, the quorum must be told: it waits for the outcome.
            name = type(request).__name__
            logger.exception("a %s could not be sent. Please report this.", name)
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a {name} could not be sent")

    async def close(self) -> None:
        """Give up what waits, and close."""
        self._waiting.clear()
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])
        await self._link.close()


async def _ask(connection: Connection, request: Request, timeout_ms: int) -> Response:
    if isinstance(request, ApiVersionsRequest):
        # Its version is found by trial.
        return await connection.ask_versions()
    answer = find_api(request.API_KEY).response()
    sent = in_version(request, connection.version_of(type(request)))
    return await connection.request(sent, answer, timeout_ms=timeout_ms)
