"""The HTTP port: what it says of the node, and what it does not put up with."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import KafkaError
from dohle.metrics.http import HEAD_BYTES_MAX
from dohle.server.host import SystemNodeHost
from dohle.server.metrics.http_server import CONNECTIONS_MAX
from dohle.server.node import Node
from tests.server.metrics.scraping import TIMEOUT_S, get, raw, scrape, value
from tests.server.wire import (
    UnsyncedFileSystem,
    Wire,
    batch,
    create_topic,
    node_config,
    on_node,
    produce_request,
    running_node,
)

HTTP = {"metrics.listener": "127.0.0.1:0"}


def test_a_node_that_serves_is_alive_and_ready(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for path in ("/healthz", "/readyz"):
            answer = await get(node, path)
            assert (answer.status, answer.body) == (200, "ok\n")

    on_node(tmp_path, scenario, HTTP)


def test_a_node_with_a_failed_disk_lives_and_is_not_ready(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        failing = next(one for one in node.logs.directories if one.path.endswith("second"))
        failing.disk.failed("being tested", OSError("broken"))
        answer = await get(node, "/readyz")
        assert answer.status == 503
        assert "offline: 1" in answer.body
        assert (await get(node, "/healthz")).status == 200
        series = await scrape(node)
        assert value(series, "kafka_log_logmanager_offlinelogdirectorycount") == 1
        labels = {"logDirectory": failing.path}
        assert value(series, "kafka_log_logmanager_logdirectoryoffline", **labels) == 1
        assert value(series, "dohle_log_messages_total", level="ERROR") >= 1

    directories = f"{tmp_path / 'first'},{tmp_path / 'second'}"
    on_node(tmp_path, scenario, {**HTTP, "log.dirs": directories})


def test_metrics_are_there_while_the_node_starts_and_gone_when_it_has_stopped(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        files = UnsyncedFileSystem()
        node = Node(node_config(tmp_path, HTTP), host=SystemNodeHost(files=files))
        starting = asyncio.ensure_future(node.start())
        while node.metrics is None:
            await asyncio.sleep(0)
        answer = await get(node, "/readyz")
        await starting
        # Which of them it was depends on who is faster; it was answered either way.
        assert answer.status in (200, 503)
        await node.stop()
        with pytest.raises(OSError):
            await get(node, "/healthz")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../healthz HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX, 431),
    ],
)
def test_what_is_not_a_small_get_is_refused(
    tmp_path: Path, request_bytes: bytes, status: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await raw_and_close(node, request_bytes)
        assert answer.startswith(b"HTTP/1.1 %d " % status)

    on_node(tmp_path, scenario, HTTP)


async def raw_and_close(node: Node, request: bytes) -> bytes:
    """Send a request and say that nothing follows."""
    assert node.metrics is not None
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(node.metrics.host, node.metrics.port)
        writer.write(request)
        writer.write_eof()
        try:
            return await reader.read()
        finally:
            writer.close()


def test_a_head_request_gets_no_body(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for path in ("/metrics", "/healthz", "/readyz"):
            answer = await get(node, path, "HEAD")
            assert (answer.status, answer.body) == (200, "")

    on_node(tmp_path, scenario, HTTP)


def test_a_request_may_come_byte_by_byte(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        assert node.metrics is not None
        reader, writer = await asyncio.open_connection(node.metrics.host, node.metrics.port)
        for byte in b"GET /healthz HTTP/1.1\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.read()).endswith(b"ok\n")
        writer.close()

    on_node(tmp_path, scenario, HTTP)


def test_clients_that_say_nothing_do_not_keep_the_port_from_kafka_s_clients(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        assert node.metrics is not None
        address = (node.metrics.host, node.metrics.port)
        silent = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX + 5)]
        # Those above the limit are closed at once.
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(silent[-1][0].read(), TIMEOUT_S) == b""
        await create_topic(wire, "t")
        await wire.send(produce_request("t", batch(b"v")), 12)
        for _, writer in silent:
            writer.close()
        while True:
            with contextlib.suppress(ConnectionError, IndexError):
                if (await get(node, "/healthz")).status == 200:
                    break

    on_node(tmp_path, scenario, HTTP)


def test_a_reader_that_takes_nothing_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, HTTP) as node:
            assert node.metrics is not None
            async with await Wire.connect(node) as wire:
                await create_topic(wire, "t", partitions=1_000)
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, (node.metrics.host, node.metrics.port))
            await loop.sock_sendall(sock, b"GET /metrics HTTP/1.1\r\n\r\n")
            # It has begun to answer, and cannot go on.
            assert (await loop.sock_recv(sock, 9)) == b"HTTP/1.1 "
            assert (await get(node, "/healthz")).status == 200
        sock.close()

    asyncio.run(scenario())


def test_many_scrapes_at_once_are_all_answered(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", partitions=50)
        for series in await asyncio.gather(*(scrape(node) for _ in range(8))):
            assert value(series, "kafka_server_replicamanager_partitioncount") == 50

    on_node(tmp_path, scenario, HTTP)


def test_a_port_that_is_taken_costs_the_metrics_and_not_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        assert node.metrics is None
        await create_topic(wire, "t")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        on_node(tmp_path, scenario, {"metrics.listener": address})
    (line,) = [record.getMessage() for record in caplog.records if "metrics" in record.message]
    assert address in line


@pytest.mark.parametrize("text", ["nonsense", "127.0.0.1:99999", "127.0.0.1"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(KafkaError, match=r"metrics\.listener"):
        node_config(tmp_path, {"metrics.listener": text})


def test_nothing_is_served_unless_it_is_asked_for(tmp_path: Path) -> None:
    config: BrokerConfig = node_config(tmp_path)
    assert config.metrics_listener is None
    assert node_config(tmp_path, {"metrics.listener": ""}).metrics_listener is None


def test_the_answer_to_a_probe_names_no_topic(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "secret-name")
        for path in (b"/healthz", b"/readyz", b"/secret-name"):
            answer = await raw(node, b"GET " + path + b" HTTP/1.1\r\n\r\n")
            assert b"secret-name" not in answer

    on_node(tmp_path, scenario, HTTP)
