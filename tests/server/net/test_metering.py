"""How connections of clients with quotas are served (facts: security.md, section 9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.server.net.connection import Connection
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce_request, running_node

PRODUCE = 12
#: One window besides the current one: a second's worth is free.
SHORT = {"quota.window.num": "2"}


async def limit(wire: Wire, client_id: str, rate: float | None) -> None:
    """Set the rate at which a client id may produce."""
    quota = AlterClientQuotasRequestEntryData(
        entity=(EntityData(entity_type="client-id", entity_name=client_id),),
        ops=(OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None),),
    )
    answer = await wire.send(AlterClientQuotasRequest(entries=(quota,)))
    assert answer.entries[0].error_code == 0


async def throttled_ms(wire: Wire, size: int, acks: int = 1) -> int:
    request = produce_request("t", batch(b"v" * size)).replace(acks=acks)
    answer = await wire.send(request, PRODUCE)
    found: int = answer.throttle_time_ms
    return found


def produced_by_shortcut(connection: Connection) -> int:
    learnt = connection.shortcuts.get(ApiKey.PRODUCE)
    return 0 if learnt is None else learnt.served


def test_a_client_id_does_not_escape_its_quota_behind_another(tmp_path: Path) -> None:
    """9, Precedence: by client id, whichever others use the connection; shortcuts obey, too."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        async with await Wire.connect(node, "mine") as mine:
            *_, connection = node.listeners[0].connections
            other = Wire(mine._reader, mine._writer, "other")
            for _ in range(3):
                assert await throttled_ms(mine, 1_500) == 0
            assert produced_by_shortcut(connection) > 0
            await limit(wire, "mine", 2_000)
            await other.send(MetadataRequest(topics=()))
            # What was done before there was a quota does not count.
            assert await throttled_ms(mine, 1_500) == 0
            assert await throttled_ms(mine, 1_000) > 100
            assert produced_by_shortcut(connection) == 0
            # Who has no quota has the fast path again, also on this connection.
            for _ in range(3):
                assert await throttled_ms(other, 5_000) == 0
            assert produced_by_shortcut(connection) > 0
            assert await throttled_ms(mine, 2_000) > 100
            await limit(wire, "mine", None)
            for _ in range(3):
                assert await throttled_ms(mine, 5_000) == 0
            assert produced_by_shortcut(connection) > 0

    on_node(tmp_path, scenario, SHORT)


def test_without_acks_a_producer_is_only_muted(tmp_path: Path) -> None:
    """9, KIP-219: acks=0 gets no answer; the next request waits."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        await limit(wire, "mine", 2_000)
        async with await Wire.connect(node, "mine") as mine:
            now, begun = node.broker.clock.monotonic_s, node.broker.clock.monotonic_s()
            request = produce_request("t", batch(b"v" * 3_000)).replace(acks=0)
            await mine.post(request, PRODUCE)
            await mine.send(MetadataRequest(topics=()))
            assert now() - begun > 0.4

    on_node(tmp_path, scenario, SHORT)


def test_a_muted_connection_is_not_idle(tmp_path: Path) -> None:
    """9, KIP-219: the idle timer does not close who waits as told."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        await limit(wire, "mine", 2_000)
        async with await Wire.connect(node, "mine") as mine:
            assert await throttled_ms(mine, 4_000) > 800
            await mine.send(MetadataRequest(topics=()))
        (expired,) = [one.expired_count for one in node.listeners]
        # The other connection, which had nothing to wait for.
        assert expired == 1

    on_node(tmp_path, scenario, {**SHORT, "connections.max.idle.ms": "300"})


def test_a_node_stops_while_clients_have_to_wait(tmp_path: Path) -> None:
    """9, Byte quotas: there is no upper limit, so nobody waits for the end of it."""

    async def scenario() -> None:
        async with running_node(tmp_path, SHORT) as node:
            mine = await Wire.connect(node, "mine")
            await create_topic(mine, "t")
            await limit(mine, "mine", 1)
            assert await throttled_ms(mine, 4_000) > 3_000_000
            await mine.post(MetadataRequest(topics=()), 12)
            (connection,) = node.listeners[0].connections
            assert connection.is_muted
            begun = node.broker.clock.monotonic_s()
        assert node.broker.clock.monotonic_s() - begun < 10
        assert await mine.is_closed()
        await mine.close()

    asyncio.run(scenario())
