"""Many clients that send at once: what they append is written together, and each is answered."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from dohle.server.crowd import Crowd
from dohle.server.node import Node
from dohle.storage.files import Buffer
from tests.server.test_held_writes import values
from tests.server.wire import (
    UnsyncedFile,
    UnsyncedFileSystem,
    Wire,
    batch,
    create_topic,
    produce,
    running_node,
)

CLIENTS, ROUNDS = 30, 20


class Loop:
    """Does later what it is told to do soon."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], None]] = deque()

    def call_soon(self, action: Callable[[], None]) -> None:
        self._soon.append(action)

    def turn(self) -> None:
        for _ in range(len(self._soon)):
            self._soon.popleft()()


class Client:
    """Counts how often it was told to settle."""

    settled = 0

    def settle(self) -> None:
        self.settled += 1


def test_those_who_come_together_settle_at_the_end_of_the_turn() -> None:
    loop, clients = Loop(), [Client() for _ in range(5)]
    crowd = Crowd(loop.call_soon)
    for turn in range(1, 100):
        assert [crowd.take(client) for client in clients] == [True] * 5
        assert [client.settled for client in clients] == [turn - 1] * 5
        loop.turn()
        assert [client.settled for client in clients] == [turn] * 5


def test_who_comes_alone_waits_only_now_and_then() -> None:
    loop, client = Loop(), Client()
    crowd = Crowd(loop.call_soon)
    waited = 0
    for _ in range(1_000):
        waited += crowd.take(client)
        loop.turn()
    assert client.settled == waited
    assert 0 < waited < 1_000 / 40


def test_a_crowd_is_noticed_after_a_while_alone() -> None:
    loop, clients = Loop(), [Client() for _ in range(5)]
    crowd = Crowd(loop.call_soon)
    assert crowd.take(clients[0])
    loop.turn()
    assert not crowd.take(clients[0])
    for _ in range(20):
        for client in clients:
            crowd.take(client)
        loop.turn()
    assert [crowd.take(client) for client in clients] == [True] * 5


class CountingFileSystem(UnsyncedFileSystem):
    """Counts the writes to the logs of a topic."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []

    def open(self, path: str, *, write: bool = False, create: bool = False) -> UnsyncedFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        kind = CountingFile if "/t-0/" in path and path.endswith(".log") else UnsyncedFile
        file = kind(os.open(path, flags, 0o644), path, self)
        if isinstance(file, CountingFile):
            file.writes = self.writes
        return file


class CountingFile(UnsyncedFile):
    """A file whose writes count."""

    __slots__ = ("writes",)
    writes: list[int]

    def write_at(self, position: int, data: Buffer) -> None:
        self.writes.append(position)
        super().write_at(position, data)

    def write_all_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.writes.append(position)
        super().write_all_at(position, buffers)


async def connected(stack: AsyncExitStack, node: Node) -> Wire:
    return await stack.enter_async_context(await Wire.connect(node))


def test_the_appends_of_many_clients_are_written_together_and_each_is_told_its_own(
    tmp_path: Path,
) -> None:
    fs = CountingFileSystem()
    acknowledged: dict[int, bytes] = {}

    async def client(wire: Wire, name: int) -> None:
        for number in range(ROUNDS):
            value = f"{name}/{number}".encode()
            answer = await produce(wire, "t", batch(value))
            assert answer.error_code == 0
            assert acknowledged.setdefault(answer.base_offset, value) is value

    async def run() -> None:
        async with running_node(tmp_path, fs=fs) as node, AsyncExitStack() as stack:
            wires = [
                await stack.enter_async_context(await Wire.connect(node)) for _ in range(CLIENTS)
            ]
            await create_topic(wires[0], "t")
            await asyncio.gather(*(client(wire, name) for name, wire in enumerate(wires)))
            assert await values(wires[0], "t") == [
                acknowledged[offset] for offset in range(CLIENTS * ROUNDS)
            ]

    asyncio.run(run())
    assert len(fs.writes) < CLIENTS * ROUNDS / 3


def test_who_leaves_the_crowd_does_not_disturb_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as other:
            await create_topic(other, "t")
            for _ in range(10):
                await leave_in_between(node, other)

    async def leave_in_between(node: Node, other: Wire) -> None:
        before = len(await values(other, "t"))
        async with AsyncExitStack() as stack:
            wires = [await connected(stack, node) for _ in range(6)]
            posted = [asyncio.ensure_future(produce(wire, "t", batch(b"v"))) for wire in wires]
            await asyncio.sleep(0)
            posted[0].cancel()
            await wires[0].close()
            for answer in await asyncio.gather(*posted[1:]):
                assert answer.error_code == 0
        assert len(await values(other, "t")) - before in (5, 6)

    asyncio.run(run())
