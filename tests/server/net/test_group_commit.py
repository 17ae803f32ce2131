"""Many clients that send at once: what they append is written together, and each is answered."""

from __future__ import annotations

import asyncio
import errno
import os
from asyncio import Future
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.protocol.apis import ApiKey
from dohle.server.net.connection import Connection
from dohle.server.net.group_commit import GroupCommit
from dohle.server.net.outcome import Frame
from dohle.server.node import Node
from dohle.storage.files import Buffer
from tests.server.faults import FaultyFileSystem, until
from tests.server.net.connected import Peer, connected, framed, turns
from tests.server.partitions.fetching import (
    FETCH_VERSION,
    fetch_of,
    two_directories,
    values,
)
from tests.server.wire import (
    UnsyncedFile,
    UnsyncedFileSystem,
    Wire,
    batch,
    create_topic,
    on_node,
    produce,
    produce_request,
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
    group_commit = GroupCommit(loop.call_soon)
    for turn in range(1, 100):
        assert [group_commit.take(client) for client in clients] == [True] * 5
        assert [client.settled for client in clients] == [turn - 1] * 5
        loop.turn()
        assert [client.settled for client in clients] == [turn] * 5


def test_who_comes_alone_waits_only_now_and_then() -> None:
    loop, client = Loop(), Client()
    group_commit = GroupCommit(loop.call_soon)
    waited = 0
    for _ in range(1_000):
        waited += group_commit.take(client)
        loop.turn()
    assert client.settled == waited
    assert 0 < waited < 1_000 / 40


def test_a_crowd_is_noticed_after_a_while_alone() -> None:
    loop, clients = Loop(), [Client() for _ in range(5)]
    group_commit = GroupCommit(loop.call_soon)
    assert group_commit.take(clients[0])
    loop.turn()
    assert not group_commit.take(clients[0])
    for _ in range(20):
        for client in clients:
            group_commit.take(client)
        loop.turn()
    assert [group_commit.take(client) for client in clients] == [True] * 5


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


async def joined(stack: AsyncExitStack, node: Node) -> Wire:
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
            # On a machine that is busy with other things a turn of the loop may take so long that
            # some clients have to wait for the next.
            node.broker.turns.time = float
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


def test_a_producer_that_leaves_behind_a_waiting_fetch_is_served(tmp_path: Path) -> None:
    """Its last request is handled when it has said that it sends no more."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        await wire.post(fetch_of("t", wait_ms=100, min_bytes=1 << 20), FETCH_VERSION)
        await wire.post(produce_request("t", batch(b"last")), 9)
        wire.end()
        await wire.answer(ApiKey.FETCH, FETCH_VERSION)
        answer = await wire.answer(ApiKey.PRODUCE, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert await wire.is_closed()
        async with await Wire.connect(node) as other:
            assert await values(other, "t") == [b"last"]

    on_node(tmp_path, scenario)


class LateService:
    """Answers each frame with itself when it is settled, which a test decides."""

    def __init__(self) -> None:
        self.members: list[Connection] = []
        self.settled = 0

    def handle(self, frame: memoryview, connection: Connection) -> Callable[[], Frame]:
        return lambda: [framed(bytes(frame))]

    def settle(self) -> None:
        self.settled += 1

    def is_patient(self, api_key: int) -> bool:
        return False

    def may_settle_later(self, connection: Connection) -> bool:
        self.members.append(connection)
        return True

    def complete(self, answered: Future[Any]) -> Frame:
        raise AssertionError("nothing waits here")

    def forget(self, future: Future[Any]) -> None:
        raise AssertionError("nothing waits here")

    async def settle_all(self) -> None:
        """Settle whoever waits, until nobody does."""
        await turns(5)
        while self.members:
            self.members.pop(0).settle()
            await turns(5)


def test_what_was_sent_before_the_end_is_answered_after_it() -> None:
    async def scenario(service: LateService, connection: Connection, peer: Peer) -> None:
        sent = [b"%d" % number for number in range(600)]
        peer.writer.write(b"".join(map(framed, sent)))
        peer.writer.write_eof()
        await until(lambda: bool(service.members))
        await service.settle_all()
        assert [await peer.answer() for _ in sent] == sent
        await until(lambda: connection.is_closed)

    connected(scenario, LateService())


def test_nothing_is_received_over_what_is_not_settled() -> None:
    async def scenario(service: LateService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(framed(b"first"))
        await until(lambda: bool(service.members))
        peer.writer.write(framed(b"other"))
        await turns(20)
        assert len(service.members) == 1
        await service.settle_all()
        assert [await peer.answer(), await peer.answer()] == [b"first", b"other"]

    connected(scenario, LateService())


def test_what_a_closed_connection_has_sent_is_settled_too() -> None:
    async def scenario(service: LateService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(framed(b"first"))
        await until(lambda: bool(service.members))
        connection.close()
        assert service.settled == 0
        await service.settle_all()
        assert service.settled == 1

    connected(scenario, LateService())


class Failing(Client):
    """Cannot go on."""

    def settle(self) -> None:
        raise RuntimeError("nobody thought of this")


def test_one_that_fails_does_not_keep_the_others_waiting() -> None:
    loop, clients = Loop(), [Client(), Failing(), Client()]
    group_commit = GroupCommit(loop.call_soon)
    for client in clients:
        group_commit.take(client)
    loop.turn()
    assert [client.settled for client in clients] == [1, 0, 1]


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.EIO, "a sector cannot be written"), RuntimeError("nobody thought of it")],
)
def test_each_of_a_crowd_is_told_whether_its_own_was_written(
    tmp_path: Path, fault: Exception
) -> None:
    fs = FaultyFileSystem()
    config = two_directories(tmp_path)

    async def run() -> None:
        async with running_node(tmp_path, config, fs=fs) as node, AsyncExitStack() as stack:
            wires = [await joined(stack, node) for _ in range(8)]
            await create_topic(wires[0], "a")
            await create_topic(wires[0], "b")
            fs.writes["/a-0/"] = fault
            answers = await asyncio.gather(
                *(produce(wire, "ab"[at % 2], batch(b"%d" % at)) for at, wire in enumerate(wires))
            )
            codes = [answer.error_code for answer in answers]
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE] * 4
            assert Counter(await values(wires[0], "b")) == Counter([b"1", b"3", b"5", b"7"])

    asyncio.run(run())
