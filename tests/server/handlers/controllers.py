"""A node with a listener for controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from dohle.server.node import Node
from tests.server.wire import Wire, on_node

CONTROLLER = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
}


def on_controller(
    path: Path,
    scenario: Callable[[Node, Wire], Awaitable[None]],
    properties: Mapping[str, str] | None = None,
) -> None:
    async def run(node: Node, wire: Wire) -> None:
        (bound,) = [one for one in node.listeners if one.listener.name == "CONTROLLER"]
        async with await Wire.connect(f"127.0.0.1:{bound.port}") as controller:
            await scenario(node, controller)

    on_node(path, run, {**CONTROLLER, **(properties or {})})
