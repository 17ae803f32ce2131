"""A connection from this node to the active controller, on which nothing is lost (A12).

One request is on its way at a time, and others wait for their turn, up to a number. A request that
got no answer, or NOT_CONTROLLER, is sent again to whoever leads then: the leader of the quorum as
this node's own part in it knows (R122). That goes on until the request is given up. So a controller
may get a request twice, as Kafka's do. Unlike Kafka's, a request does not wait for a leader that is
silent any longer than until this node knows of the next one.

If the leader is this node itself, its controller is asked without any connection, and nobody waits
for a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from dohle.client.errors import ConnectionClosed, TimedOut
from dohle.client.net.addresses import Address
from dohle.client.net.backoff import Backoff
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import Host
from dohle.core.ids import BrokerId
from dohle.protocol.schema import VersionRange
from dohle.security.client import PLAINTEXT, ClientSecurity
from dohle.server.channel import ControllerEndpoint, DecidingController
from dohle.server.links import LinkSettings, NodeLink

T = TypeVar("T", covariant=True)

_RETRY_MS = 50
#: How often a waiting request looks up who leads.
_LOOK_S = 0.1
_MS = 1000


class LinkLimits(NamedTuple):
    """How long a request may take, and how many may wait."""

    #: How long it is tried; None: for ever.
    give_up_ms: int | None
    #: How long one attempt may take.
    request_timeout_ms: int
    waiting_max: int


class NotController(Exception):
    """Whoever was asked is not the active controller (any more)."""


class ControllerRequest(Protocol[T]):
    """A request, and the two ways to send it. Both may raise NotController."""

    async def locally(self, controller: DecidingController) -> T:
        """Ask the controller of this node."""

    async def remotely(self, connection: Connection) -> T:
        """Ask another node."""


class ControllerLink:
    """One way to the active controller."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: Host,
        node_id: BrokerId,
        find_leader: Callable[[], ControllerEndpoint | None],
        local: DecidingController | None,
        limits: LinkLimits,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        """``local`` is the controller of this node, if it has that role."""
        self._loop = loop
        self._node_id = node_id
        self._find_leader = find_leader
        self._local = local
        self._limits = limits
        timeout_ms = limits.request_timeout_ms
        settings = LinkSettings(
            str(node_id),
            timeout_ms,
            timeout_ms,
            reconnect_backoff_max_ms=_RETRY_MS,
            security=security,
        )
        self._link = NodeLink(loop, host, settings)
        self._backoff = Backoff(_RETRY_MS, _RETRY_MS, host.rng)
        self._turn = asyncio.Lock()
        self._waiting = 0

    def controller_range(self, api_key: int) -> VersionRange | None:
        """Return the versions of an API at the controller spoken to last; empty if it has none.

        None if this node has not spoken to any (A13).
        """
        connection = self._link.connection
        return None if connection is None else connection.served_range(api_key)

    async def ask(self, delivery: ControllerRequest[T]) -> T:
        """Return the answer; KafkaError REQUEST_TIMED_OUT if there is none in time."""
        if self._is_local(self._find_leader()):
            try:
                return await self._ask_local(delivery)
            except NotController:
                pass
        if self._waiting >= self._limits.waiting_max:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self._waiting} requests wait for the controller already",
            )
        give_up_ms = self._limits.give_up_ms
        self._waiting += 1
        try:
            async with asyncio.timeout(None if give_up_ms is None else give_up_ms / _MS):
                async with self._turn:
                    return await self._ask_until_answered(delivery)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the controller did not answer within {give_up_ms} ms"
            ) from None
        finally:
            self._waiting -= 1

    def _is_local(self, leader: ControllerEndpoint | None) -> bool:
        return self._local is not None and leader is not None and leader.node_id == self._node_id

    async def _ask_local(self, delivery: ControllerRequest[T]) -> T:
        assert self._local is not None, "it leads"
        return await delivery.locally(self._local)

    async def _ask_until_answered(self, delivery: ControllerRequest[T]) -> T:
        while True:
            leader = self._find_leader()
            if leader is None:
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                if self._is_local(leader):
                    return await self._ask_local(delivery)
                return await self._ask_remote(leader, delivery)
            except (ConnectionClosed, TimedOut, NotController):
                await asyncio.sleep(self._backoff.delay_s(1))

    async def _ask_remote(self, leader: ControllerEndpoint, delivery: ControllerRequest[T]) -> T:
        asking = self._loop.create_task(self._deliver(leader, delivery))
        try:
            while not asking.done():
                await asyncio.wait((asking,), timeout=_LOOK_S)
                if not asking.done() and self._find_leader() not in (None, leader):
                    raise NotController
            return asking.result()
        except (ConnectionClosed, TimedOut, NotController, asyncio.CancelledError):
            asking.cancel()
            # What is still on its way there would keep the next request from leaving.
            self._link.cut()
            raise

    async def _deliver(self, leader: ControllerEndpoint, delivery: ControllerRequest[T]) -> T:
        connection = await self._link.connect(Address(leader.host, leader.port))
        return await delivery.remotely(connection)

    async def close(self) -> None:
        """Return when no connection is left."""
        await self._link.close()
