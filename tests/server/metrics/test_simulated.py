"""Metrics are served in the simulator too: nothing goes past the seams."""

from __future__ import annotations

import asyncio
from functools import partial

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.ids import BrokerId
from dohle.server.node import Node
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.world import World
from tests.server.metrics.scraping import parse, unchunked, value
from tests.server.replicas.simulated_cluster import SimulatedCluster

PORT = 9644


class Reader(asyncio.Protocol):
    """Sends a request, and keeps what comes until the end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.received = b""
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(f"GET {self._path} HTTP/1.1\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


def test_a_simulated_node_is_scraped() -> None:
    world = World(7)
    server, client = world.machine("node"), world.machine("client")
    found: dict[str, bytes] = {}

    async def serve(host: SimulatedHost) -> None:
        config, _ = BrokerConfig.from_properties(
            {
                **SINGLE_NODE,
                "listeners": "PLAINTEXT://node:9092",
                "log.dirs": "/data",
                "metrics.listener": f"node:{PORT}",
            }
        )
        node = Node(config, host=host)
        await node.start()
        await host.stopping.wait()
        await node.stop()

    async def ask(host: SimulatedHost, path: str) -> bytes:
        reader = Reader(path)
        await host.connect(lambda: reader, server.address, PORT)
        await reader.ended.wait()
        return reader.received

    async def scrape(host: SimulatedHost) -> None:
        await asyncio.sleep(60)
        for path in ("/readyz", "/metrics"):
            found[path] = await ask(host, path)

    server.start(serve)
    client.start(scrape)
    world.run_until(lambda: len(found) == 2, 1_000)
    server.request_stop()
    world.run_for(10)
    assert world.errors == []
    world.close()
    assert found["/readyz"].endswith(b"ok\n")
    series = parse(unchunked(found["/metrics"].partition(b"\r\n\r\n")[2]).decode())
    assert value(series, "kafka_server_kafkaserver_brokerstate") == 3
    assert value(series, "dohle_event_loop_delay_seconds_count") > 500
    assert "process_cpu_seconds_total" not in series


def _same(reader: Reader) -> Reader:
    return reader


def test_a_broker_is_not_ready_while_no_controller_is_active() -> None:
    """Clients that are sent to it could change nothing; it is ready again when there is one."""
    world = World(3)
    cluster = SimulatedCluster(world, properties={"metrics.listener": f"n{{id}}:{PORT}"})
    first, *others = cluster.machines
    client = world.machine("client")
    answers: list[bytes] = []

    async def ask(host: SimulatedHost) -> None:
        while True:
            reader = Reader("/readyz")
            await host.connect(partial(_same, reader), cluster.machines[first].address, PORT)
            await reader.ended.wait()
            answers.append(reader.received)
            await asyncio.sleep(1)

    def last() -> bytes:
        return answers[-1] if answers else b""

    cluster.start_all()
    world.run_until(lambda: cluster.is_up, 120)
    client.start(ask)
    world.run_until(lambda: last().endswith(b"ok\n"), 60)
    for node_id in others:
        cluster.kill(node_id)
    world.run_until(lambda: b"no active controller for 2" in last(), 60)
    assert last().startswith(b"HTTP/1.1 503 ")
    cluster.start(BrokerId(2))
    world.run_until(lambda: last().endswith(b"ok\n"), 120)
    assert world.errors == []
    world.close()
