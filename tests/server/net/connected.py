"""A connection of the server with a service of the test's behind it, and its peer."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dohle.server.host import SystemNodeHost
from dohle.server.net.connection import Connection
from dohle.server.net.request_memory import RequestMemory
from dohle.server.net.service import Service
from dohle.server.net.turns import Turns

TIMEOUT_S = 20
REQUEST_BYTES_MAX = 100 << 20

ServiceT = TypeVar("ServiceT", bound=Service)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Peer:
    """The client's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def answer(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)


def connected(
    scenario: Callable[[ServiceT, Connection, Peer], Awaitable[None]],
    service: ServiceT,
    memory: RequestMemory | None = None,
) -> None:
    async def run() -> None:
        ours, theirs = _tcp_pair()
        connection = Connection(
            asyncio.get_running_loop(),
            ours,
            service,
            Turns(asyncio.get_running_loop(), SystemNodeHost()),
            memory,
            listener="L",
            peer="test",
            request_bytes_max=REQUEST_BYTES_MAX,
            on_closed=lambda _: None,
        )
        reader, writer = await asyncio.open_connection(sock=theirs)
        try:
            await scenario(service, connection, Peer(reader, writer))
        finally:
            connection.close()
            writer.close()
            await writer.wait_closed()

    asyncio.run(run())


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    return ours, theirs


async def turns(count: int) -> None:
    """Let the loop do what there is to do, this many times."""
    for _ in range(count):
        await asyncio.sleep(0)
