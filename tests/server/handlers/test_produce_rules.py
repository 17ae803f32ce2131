"""What a leader asks before it takes records."""

from __future__ import annotations

from pathlib import Path

from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce


def test_no_more_replicas_must_be_in_sync_than_there_are(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "orders", configs={"min.insync.replicas": "2"})
        assert (await produce(wire, "orders", batch(b"v"))).error_code == 0

    on_node(tmp_path, scenario)
