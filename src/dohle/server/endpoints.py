"""The addresses that a node listens on, and what others are told of them."""

from __future__ import annotations

import errno
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence

from dohle.core.config.definition import ConfigValues
from dohle.core.config.listeners import Listener
from dohle.core.config.static import BrokerConfig
from dohle.core.host import Host
from dohle.server.net.listener import ConnectionLimits, ListeningSocket
from dohle.server.net.request_memory import RequestMemory
from dohle.server.net.service import Service
from dohle.server.net.turns import Turns
from dohle.server.security import Entrances

_ANY_ADDRESS = ("", "0.0.0.0", "::")


class Endpoints:
    """All listening sockets of a node, with the limits that they share."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        config: BrokerConfig,
        host: Host,
        turns: Turns,
        values: Callable[[], ConfigValues],
        entrances: Entrances,
    ) -> None:
        """``values`` are the settings in force: limits may be altered while the node runs."""
        self._loop = loop
        self._config = config
        self._host = host
        self._turns = turns
        memory_size = config.get_int("queued.max.request.bytes")
        self._memory = RequestMemory(memory_size) if memory_size > 0 else None
        self.limits = ConnectionLimits(values, host.open_files_max)
        self._entrances = entrances
        self.sockets: list[ListeningSocket] = []

    async def prepare(self, listeners: Sequence[Listener]) -> None:
        """Read what listeners need of other machines."""
        await self._entrances.prepare(listeners)

    def bind(self, listeners: Sequence[Listener]) -> None:
        """Take ports; nobody is served before ``serve``."""
        config = self._config
        for listener in listeners:
            entrance = self._entrances.make(listener)
            try:
                bound = ListeningSocket(
                    self._loop,
                    self._host,
                    listener,
                    self._turns,
                    self._memory,
                    self.limits,
                    backlog=config.get_int("socket.listen.backlog.size"),
                    request_bytes_max=config.get_int("socket.request.max.bytes"),
                    idle_ms_max=config.get_int("connections.max.idle.ms"),
                    entrance=entrance,
                )
            except OSError as error:
                where = f"{listener.host or '0.0.0.0'}:{listener.port}"
                reason = error.strerror or str(error)
                if error.errno == errno.EADDRINUSE:
                    reason += "; is another node running?"
                elif error.errno == errno.EADDRNOTAVAIL:
                    reason += "; this machine has no such address: clients are told others by "
                    reason += "advertised.listeners"
                raise OSError(error.errno, f"cannot listen on {where}: {reason}") from error
            self.sockets.append(bound)

    def serve(self, listeners: Sequence[Listener], service: Service) -> None:
        """Accept connections on these, and let the service answer."""
        for socket in self.sockets:
            if socket.listener in listeners:
                socket.start(service)

    def told(self, advertised: Sequence[Listener]) -> list[Listener]:
        """Return the addresses to tell others; port 0 and an empty host become what was bound."""
        bound = {socket.listener.name: socket for socket in self.sockets}
        found = []
        for listener in advertised:
            host = "localhost" if listener.host in _ANY_ADDRESS else listener.host
            port = listener.port or bound[listener.name].port
            found.append(listener._replace(host=host, port=port))
        return found

    def check(self, texts: Mapping[str, str]) -> None:
        """Refuse settings that a listener could not work with; they are not in force yet."""
        self._entrances.check(texts)

    def renew(self) -> None:
        """Let altered settings of listeners take effect, for whoever connects from now on."""
        self._entrances.renew()

    def stop_accepting(self) -> None:
        """Take no further connections."""
        for socket in self.sockets:
            socket.stop_accepting()

    def close(self) -> None:
        """Close all connections."""
        for socket in self.sockets:
            socket.close()
        self._entrances.close()
