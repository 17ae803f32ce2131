"""When the dispatcher learns a shortcut, and when it leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.protocol.apis import ApiKey
from dohle.server.net.shortcut import REST_REQUESTS, Shortcut
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce


def learnt_in(node: Node) -> Shortcut | None:
    """Return what the only connection has learnt from its produce requests."""
    (connection,) = node.listeners[0].connections
    return connection.shortcuts.get(ApiKey.PRODUCE)


async def send(wire: Wire, acks: int) -> None:
    assert (await produce(wire, "a", batch(b"v"), acks=acks)).error_code == 0


def test_requests_that_differ_each_time_are_not_learnt_from_for_a_while(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "a")
        await send(wire, 1)
        assert learnt_in(node) is not None
        for number in range(REST_REQUESTS + 1):
            await send(wire, (-1, 1)[number % 2])
            assert learnt_in(node) is None
        await send(wire, -1)
        learnt = learnt_in(node)
        assert learnt is not None
        await send(wire, -1)
        assert learnt_in(node) is learnt
        assert learnt.served
        # It was not in vain, so the next is learnt from at once.
        await send(wire, 1)
        assert learnt_in(node) is not learnt
        await send(wire, 1)
        assert (now := learnt_in(node)) is not None
        assert now.served

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("size", [0, 1])
def test_a_frame_too_short_for_an_api_key_closes_the_connection(tmp_path: Path, size: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await wire.send_bytes(size.to_bytes(4, "big") + bytes(size))
        assert await wire.is_closed()

    on_node(tmp_path, scenario)
