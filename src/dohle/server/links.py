"""The connection from this node to another one, wherever that is now.

All that a node asks of other nodes goes through such a link: requests to the active controller, to
the nodes of the quorum, fetches of followers, and what transactions need of other brokers.

- There is one connection, opened when it is needed, and anew when it is gone or the node has moved.
- A node that refused a connection is left alone for a while, which grows with each refusal; whoever
  wants the connection meanwhile waits, and is then told the new outcome.
- Requests are matched with their answers, timed out and counted by the connection itself: one is on
  its way at a time. A request that failed may have been carried out: nothing is sent twice here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from dohle.client.config import ClientConfig
from dohle.client.errors import AuthenticationFailed, ConnectionClosed
from dohle.client.net.addresses import Address
from dohle.client.net.backoff import Backoff
from dohle.client.net.connection import Connection
from dohle.core.host import Host
from dohle.core.ids import BrokerId
from dohle.metadata.image import ClusterImage
from dohle.security.client import PLAINTEXT, ClientSecurity

logger = logging.getLogger("dohle.server")

RECONNECT_BACKOFF_MS = 50
_RECONNECT_BACKOFF_MAX_MS = 500
_RESPONSE_BYTES_MAX = 100 * 1024 * 1024
_RESPONSE_BYTES_KEPT = 2 * 1024 * 1024


class LinkSettings(NamedTuple):
    """How a link works."""

    #: The client id of this node.
    client_id: str
    request_timeout_ms: int
    connection_setup_timeout_ms: int
    #: The size of the largest answer, in bytes.
    response_bytes_max: int = _RESPONSE_BYTES_MAX
    #: Memory for answers up to this size is kept.
    response_bytes_kept: int = _RESPONSE_BYTES_KEPT
    reconnect_backoff_max_ms: int = _RECONNECT_BACKOFF_MAX_MS
    #: How this node and the other authenticate each other.
    security: ClientSecurity = PLAINTEXT


def broker_address(image: ClusterImage, broker_id: BrokerId, listener_name: str) -> Address:
    """Return where a broker is, as brokers see it (M6); ConnectionClosed if nobody knows."""
    registered = image.broker(broker_id)
    endpoint = None if registered is None else registered.endpoints.get(listener_name)
    if endpoint is None:
        raise ConnectionClosed(f"broker {broker_id} has no listener {listener_name}")
    return Address(endpoint.host, endpoint.port)


class NodeLink:
    """A way to one other node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: Host, settings: LinkSettings) -> None:
        self._loop = loop
        self._host = host
        self._config = ClientConfig(
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            socket_connection_setup_timeout_ms=settings.connection_setup_timeout_ms,
            in_flight_requests_max=1,
            response_bytes_max=settings.response_bytes_max,
            response_bytes_kept=settings.response_bytes_kept,
            security=settings.security,
        )
        self._backoff = Backoff(RECONNECT_BACKOFF_MS, settings.reconnect_backoff_max_ms, host.rng)
        self._closing: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._not_before_s = 0.0
        #: The connection that was opened last, unless it was let go.
        self.connection: Connection | None = None

    async def connect(self, address: Address) -> Connection:
        """Return the connection, opened now or before; ConnectionClosed if there is none."""
        found = self.connection
        if found is not None and (found.is_closed or found.address != address):
            self.cut()
            found = None
        if found is None:
            await asyncio.sleep(max(self._not_before_s - self._loop.time(), 0))
            try:
                found = await self._open(address)
            except BaseException:
                self._failures += 1
                delay_s = self._backoff.delay_s(self._failures)
                self._not_before_s = self._loop.time() + delay_s
                raise
            self.connection, self._failures = found, 0
        return found

    async def _open(self, address: Address) -> Connection:
        try:
            return await Connection.open(address, self._config, self._host)
        except AuthenticationFailed as error:
            # This may pass: somebody renews a certificate, or alters a password.
            logger.warning(
                "%s refuses the login of this node (%s): %s",
                address,
                self._config.client_id,
                error.args[0],
            )
            raise ConnectionClosed(str(error.args[0])) from None

    def cut(self) -> None:
        """Let the connection go, without waiting until it is gone.

        Whoever waits for an answer on it is told that it is closed.
        """
        connection, self.connection = self.connection, None
        if connection is not None:
            closing = self._loop.create_task(connection.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Return when no connection is left."""
        self.cut()
        if self._closing:
            await asyncio.wait(self._closing)
