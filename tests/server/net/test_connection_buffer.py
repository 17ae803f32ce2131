"""A connection's receive buffer: what a handler still looks at stays as it came."""

from __future__ import annotations

import asyncio
import random
from asyncio import Future
from collections.abc import Callable
from typing import Any

import pytest

from dohle.server.net.connection import Connection
from dohle.server.net.outcome import Frame
from dohle.server.net.receive_buffer import BUFFER_BYTES, BUFFER_BYTES_AT_FIRST, BUFFER_BYTES_KEPT
from dohle.server.net.request_memory import RequestMemory
from tests.server.faults import until
from tests.server.net.connected import Peer, connected, framed, turns


class EchoService:
    """Answers a frame with itself; one that begins with ``wait`` only when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[memoryview, Future[Any]]] = []
        self.handled = 0

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | Callable[[], Frame] | Future[Any]:
        self.handled += 1
        if bytes(frame[:4]) == b"wait":
            future: Future[Any] = asyncio.get_running_loop().create_future()
            self.waiting.append((frame, future))
            return future
        return [framed(bytes(frame))]

    def settle(self) -> None:
        pass

    def is_patient(self, api_key: int) -> bool:
        return False

    def may_settle_later(self, connection: Connection) -> bool:
        return False

    def complete(self, answered: Future[Any]) -> Frame:
        return [framed(answered.result())]

    def forget(self, future: Future[Any]) -> None:
        future.cancel()

    def answer(self) -> None:
        """Answer the request that waits, from what its view shows now."""
        frame, future = self.waiting.pop()
        future.set_result(bytes(frame))


def payloads(sizes: list[int]) -> list[bytes]:
    rng = random.Random(1)
    return [rng.randbytes(size) for size in sizes]


@pytest.mark.parametrize(
    "size",
    [
        10,
        BUFFER_BYTES_AT_FIRST - 4,
        BUFFER_BYTES_AT_FIRST - 9,
        BUFFER_BYTES - 4,
        BUFFER_BYTES - 5,
        1_000_000,
        3_000_000,
    ],
)
@pytest.mark.parametrize("before", [0, 1, 5_000])
def test_what_arrives_while_a_request_waits_leaves_its_bytes_alone(size: int, before: int) -> None:
    waits = b"wait" + random.Random(size).randbytes(size - 4)
    behind = payloads([1, 300, 20_000, 40_000, 250_000, 700_000, 5, 2_500_000, 80])

    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(framed(b"x" * before) + framed(waits))
        assert await peer.answer() == b"x" * before
        await until(lambda: len(service.waiting) == 1)
        handled = service.handled
        for payload in behind:
            # One by one, so that there are many read events while the answer is awaited.
            peer.writer.write(framed(payload))
            await turns(5)
        await turns(100)
        assert service.handled == handled
        assert bytes(service.waiting[0][0]) == waits
        service.answer()
        assert await peer.answer() == waits
        for payload in behind:
            assert await peer.answer() == payload

    connected(scenario, EchoService())


@pytest.mark.parametrize(
    "size", [64 * 1024, 64 * 1024 + 1, 200_000, BUFFER_BYTES, 600_000, 1_048_572, 2_097_149]
)
def test_large_requests_sent_at_once_are_answered_in_order(size: int) -> None:
    requests = payloads([size - number for number in range(12)])

    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(b"".join(map(framed, requests)))
        for request in requests:
            assert await peer.answer() == request

    connected(scenario, EchoService())


def test_requests_that_wait_again_and_again_are_each_answered_from_their_own_bytes() -> None:
    rng = random.Random(2)
    requests = [b"wait" + rng.randbytes(rng.choice([0, 90, 5_000, 70_000])) for _ in range(60)]

    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(b"".join(map(framed, requests)))
        for request in requests:
            await until(lambda: bool(service.waiting))
            await turns(3)
            service.answer()
            assert await peer.answer() == request

    connected(scenario, EchoService())


def test_a_client_that_leaves_while_its_request_waits_is_noticed() -> None:
    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(framed(b"wait" + bytes(BUFFER_BYTES_AT_FIRST - 8)))
        await until(lambda: bool(service.waiting))
        peer.writer.close()
        await until(lambda: connection.is_closed)
        assert service.waiting[0][1].cancelled()

    connected(scenario, EchoService())


def test_what_stands_behind_a_request_that_waits_is_handled_though_its_client_is_gone() -> None:
    """As in Kafka: a client may leave its group behind a join that is not through, and close."""

    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(framed(b"wait") + framed(b"last"))
        peer.writer.close()
        await until(lambda: bool(service.waiting))
        await turns(10)
        assert not connection.is_closed
        service.answer()
        await until(lambda: connection.is_closed)
        assert service.handled == 2

    connected(scenario, EchoService())


def test_a_client_that_sends_no_more_gets_the_answers_of_all_but_a_last_one_that_waits() -> None:
    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(b"".join(map(framed, (b"wait 1", b"wait 2", b"now", b"wait 3"))))
        peer.writer.write_eof()
        for _ in range(2):
            await until(lambda: bool(service.waiting))
            await turns(10)
            service.answer()
        assert [await peer.answer() for _ in range(3)] == [b"wait 1", b"wait 2", b"now"]
        await until(lambda: connection.is_closed)
        assert service.waiting[0][1].cancelled()

    connected(scenario, EchoService())


# Memory for large requests


def nobody() -> None:
    """Nobody waits."""


LARGE = BUFFER_BYTES_KEPT + 1


def test_a_large_request_is_received_when_there_is_memory_for_it() -> None:
    memory = RequestMemory(LARGE)
    assert memory.take(LARGE, nobody)

    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        small, large = payloads([100, LARGE])
        peer.writer.write(framed(small) + framed(large))
        # What is small needs none of it.
        assert await peer.answer() == small
        await turns(20)
        assert service.handled == 1
        memory.give(LARGE)
        assert await peer.answer() == large
        await until(lambda: memory.left == LARGE)

    connected(scenario, EchoService(), memory)


def test_a_large_request_has_its_memory_until_it_is_answered() -> None:
    memory = RequestMemory(LARGE)

    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        for _ in range(3):
            peer.writer.write(framed(b"wait" + bytes(LARGE - 4)))
            await until(lambda: bool(service.waiting))
            assert memory.left == 0
            service.answer()
            await peer.answer()
            assert memory.left == LARGE

    connected(scenario, EchoService(), memory)


@pytest.mark.parametrize("arrived", [100_000, LARGE])
def test_a_client_that_leaves_gives_its_memory_back(arrived: int) -> None:
    memory = RequestMemory(LARGE)

    async def scenario(service: EchoService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(framed(b"wait" + bytes(LARGE - 4))[:arrived])
        await until(lambda: memory.left == 0)
        peer.writer.close()
        await until(lambda: connection.is_closed)
        assert memory.left == LARGE

    connected(scenario, EchoService(), memory)
