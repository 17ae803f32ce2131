"""The connection to another node: opened when needed, anew when it is gone, with pauses between."""

from __future__ import annotations

import asyncio

import pytest

from dohle.client.errors import ConnectionClosed
from dohle.client.net.addresses import Address
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId
from dohle.metadata.image import EMPTY_IMAGE
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dohle.server.links import LinkSettings, NodeLink, broker_address
from tests.client.scripted_broker import SILENCE, ScriptedBroker, until, within
from tests.ports import free_port

DEADLINE_S = 20
SETTINGS = LinkSettings("1", request_timeout_ms=10_000, connection_setup_timeout_ms=5_000)


def make_link() -> NodeLink:
    return NodeLink(asyncio.get_running_loop(), SystemHost(), SETTINGS)


def test_a_connection_is_kept_and_opened_anew_when_it_is_gone_or_the_node_has_moved() -> None:
    async def body() -> None:
        async with ScriptedBroker() as here, ScriptedBroker() as there:
            link = make_link()
            first = await link.connect(here.address)
            assert await link.connect(here.address) is first
            await here.hang_up()
            await until(lambda: first.is_closed)
            second = await link.connect(here.address)
            assert second is not first
            moved = await link.connect(there.address)
            assert (here.connections, there.connections) == (2, 1)
            await link.close()
            assert second.is_closed
            assert moved.is_closed

    within(DEADLINE_S, body())


def test_a_node_that_refuses_is_asked_again_after_a_pause_that_grows() -> None:
    async def body() -> None:
        link, nowhere = make_link(), Address("127.0.0.1", free_port())
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in range(4):
            with pytest.raises(ConnectionClosed):
                await link.connect(nowhere)
        # 50, 100 and 200 ms, each by a fifth shorter at most.
        assert loop.time() - began_s >= 0.27
        await link.close()

    within(DEADLINE_S, body())


def test_who_waits_for_an_answer_is_told_when_the_connection_is_let_go() -> None:
    async def body() -> None:
        async with ScriptedBroker(metadata=lambda message, version: SILENCE) as silent:
            link = make_link()
            connection = await link.connect(silent.address)
            asking = asyncio.ensure_future(connection.request(MetadataRequest(), MetadataResponse))
            await until(lambda: len(silent.requests) == 1)
            link.cut()
            with pytest.raises(ConnectionClosed):
                await asking
            await link.close()

    within(DEADLINE_S, body())


def test_a_broker_that_is_not_registered_is_nowhere() -> None:
    with pytest.raises(ConnectionClosed):
        broker_address(EMPTY_IMAGE, BrokerId(3), "PLAINTEXT")
