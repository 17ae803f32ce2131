"""The ways from a node to controllers that may be other nodes, put together (A12)."""

from __future__ import annotations

from asyncio import AbstractEventLoop, gather
from collections.abc import Callable

from dohle.core.config.static import BrokerConfig
from dohle.core.host import Host
from dohle.server.channel import (
    ClientGuard,
    ControllerChannel,
    ControllerChannels,
    ControllerEndpoint,
    DecidingController,
)
from dohle.server.channels.active_controller import ActiveController
from dohle.server.channels.link import ControllerLink, LinkLimits
from dohle.server.net.turns import Turns
from dohle.server.security import controller_security

_GIVE_UP_MS = 60_000
_GIVE_UP_REGISTRATION_MS = 5_000
#: Clients that wait for the controller are told to try again beyond this number.
_FORWARDED_MAX = 1_000
#: The broker itself sends one at a time, or a few.
_OWN_MAX = 16


class RemoteChannels:
    """Connections to the active controller; ``close`` ends them."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        host: Host,
        config: BrokerConfig,
        turns: Turns,
        find_leader: Callable[[], ControllerEndpoint | None],
        local: DecidingController | None = None,
        guard: ClientGuard | None = None,
    ) -> None:
        """``find_leader`` tells who leads the quorum, as far as this node knows.

        ``guard`` is for what clients ask of ``local``, the controller of this node.
        """
        self._links: list[ControllerLink] = []
        security = controller_security(config)
        attempt_ms = config.get_int("controller.socket.timeout.ms")

        def link(give_up_ms: int | None, waiting_max: int) -> ActiveController:
            timeout_ms = attempt_ms if give_up_ms is None else min(attempt_ms, give_up_ms)
            limits = LinkLimits(give_up_ms, timeout_ms, waiting_max)
            made = ControllerLink(loop, host, config.node_id, find_leader, local, limits, security)
            self._links.append(made)
            return ActiveController(made, turns, guard)

        self.channels = ControllerChannels(
            forwarding=link(_GIVE_UP_MS, _FORWARDED_MAX),
            heartbeat=link(config.get_int("broker.heartbeat.interval.ms"), _OWN_MAX),
            alter_partition=link(None, _OWN_MAX),
            directory_assignments=link(_GIVE_UP_MS, _OWN_MAX),
        )
        #: For the registration of this node's own controller.
        self.registration: ControllerChannel = link(_GIVE_UP_REGISTRATION_MS, _OWN_MAX)

    async def close(self) -> None:
        """Return when all connections are gone."""
        await gather(*(each.close() for each in self._links))
