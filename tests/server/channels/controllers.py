"""Controllers in a simulated world: real listeners, and decisions that are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.ids import BrokerId
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metrics.requests import AllRequests
from dohle.protocol.schema import Request, Response
from dohle.server.channel import Client, ControllerEndpoint, ImageListener
from dohle.server.channels.setup import RemoteChannels
from dohle.server.controller_apis import ControllerApis
from dohle.server.endpoints import Endpoints
from dohle.server.net.dispatch import Dispatcher
from dohle.server.net.turns import Turns
from dohle.server.registry import controller_handlers
from dohle.server.security import Entrances
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.world import World

R = TypeVar("R", bound=Response)
Decide = Callable[[Request], Response | Coroutine[Any, Any, Response]]
PORT = 9093


class Images:
    """A cluster without anything in it."""

    image: ClusterImage = EMPTY_IMAGE
    kraft_version = 1
    applied_offset = EMPTY_IMAGE.offset

    def subscribe(self, listener: ImageListener) -> None:
        """Never call it."""


class ScriptedController:
    """What decides on a controller: a function of the request."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.asked: list[tuple[Request, int | None]] = []
        self.at_once = 0
        self.at_once_max = 0

    async def send(
        self,
        request: Request,
        answer: type[R],
        version: int | None = None,
        *,
        client: Client | None = None,
    ) -> R:
        """Decide."""
        self.asked.append((request, version))
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            found = self.decide(request)
            if not isinstance(found, Response):
                found = await found
        finally:
            self.at_once -= 1
        assert isinstance(found, answer)
        return found


def config_of(node_id: int, **more: str) -> BrokerConfig:
    properties = {
        **SINGLE_NODE,
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://:9092,CONTROLLER://:{PORT}",
        "controller.listener.names": "CONTROLLER",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return BrokerConfig.from_properties(properties)[0]


def _no_raft(request: Request, version: int, listener: str) -> asyncio.Future[Response]:
    raise AssertionError("no node of a quorum asks here")


def serve(world: World, node_id: int, controller: ScriptedController) -> ControllerEndpoint:
    """Start a controller on a machine of its own."""
    config = config_of(node_id)

    async def program(host: SimulatedHost) -> None:
        loop = asyncio.get_running_loop()
        turns = Turns(loop, host)
        entrances = Entrances(loop, host, config, lambda: config.texts, lambda *_: None)
        endpoints = Endpoints(loop, config, host, turns, lambda: config.values, entrances)
        endpoints.bind(config.controller_listeners)
        requests = AllRequests()
        apis = ControllerApis(config, "c", host.clock, turns, Images(), controller, requests)
        handlers = controller_handlers(_no_raft)
        endpoints.serve(config.controller_listeners, Dispatcher(loop, apis, handlers))
        await asyncio.Event().wait()

    name = f"controller-{node_id}"
    machine = world.machines.get(name) or world.machine(name)
    machine.start(program)
    return ControllerEndpoint(BrokerId(node_id), name, PORT)


def on_broker(
    world: World,
    program: Callable[[RemoteChannels], Coroutine[Any, Any, None]],
    find_leader: Callable[[], ControllerEndpoint | None],
    local: ScriptedController | None = None,
    **more: str,
) -> None:
    """Run a program on the machine of broker 7, which may be the controller 7 too."""
    machine = world.machine("broker")

    async def main(host: SimulatedHost) -> None:
        loop = asyncio.get_running_loop()
        config, turns = config_of(7, **more), Turns(loop, host)
        channels = RemoteChannels(loop, host, config, turns, find_leader, local)
        try:
            await program(channels)
        finally:
            await channels.close()

    machine.start(main)
    world.run_until(machine.main.done, 600)
    machine.main.result()
