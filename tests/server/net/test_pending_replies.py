"""Requests that only wait to be answered do not hold up those that may join them."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import Any

from dohle.server.net.connection import Connection
from dohle.server.net.outcome import CloseConnection, Frame, LateFrame, PendingFrame
from dohle.server.net.reply_queue import REPLIES_MAX
from tests.server.faults import until
from tests.server.net.connected import Peer, connected, framed, turns


class PendingService:
    """Answers a frame with itself.

    One that begins with ``p`` is carried out at once and answered when a test says so; one that
    begins with ``w`` is awaited; any other may not overtake those before it.
    """

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.pending: list[tuple[bytes, PendingFrame]] = []
        self.awaited: list[Future[Any]] = []

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | LateFrame | Future[Any] | None:
        text = bytes(frame)
        if text.startswith(b"p"):
            self.handled.append(text)
            return lambda: self._pending(text)
        if text.startswith(b"w"):
            self.handled.append(text)
            self.awaited.append(asyncio.get_running_loop().create_future())
            return self.awaited[-1]
        if connection.replies.is_open and not connection.catch_up():
            return None
        self.handled.append(text)
        return [framed(text)]

    def _pending(self, text: bytes) -> PendingFrame:
        self.pending.append((text, PendingFrame()))
        return self.pending[-1][1]

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

    def fill(self, *numbers: int) -> None:
        """Answer some of those that wait."""
        for number in numbers:
            text, pending = self.pending[number]
            pending.fill([framed(text)])


def frames(*texts: bytes) -> bytes:
    return b"".join(map(framed, texts))


def test_requests_that_may_join_are_handled_behind_one_that_waits_and_answered_in_order() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        sent = [b"p%d" % number for number in range(300)]
        peer.writer.write(frames(*sent[:3]))
        await until(lambda: len(service.pending) == 3)
        peer.writer.write(frames(*sent[3:]))
        await until(lambda: len(service.pending) == len(sent))
        service.fill(*range(1, len(sent)))
        await turns(10)
        service.fill(0)
        assert [await peer.answer() for _ in sent] == sent

    connected(scenario, PendingService())


def test_a_request_that_may_not_overtake_is_handled_when_all_before_it_are_answered() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"p1", b"p2", b"fetch", b"p3", b"other"))
        await until(lambda: len(service.pending) == 2)
        await turns(10)
        service.fill(0)
        assert await peer.answer() == b"p1"
        await turns(10)
        assert service.handled == [b"p1", b"p2"]
        service.fill(1)
        assert [await peer.answer(), await peer.answer()] == [b"p2", b"fetch"]
        await until(lambda: len(service.pending) == 3)
        assert service.handled == [b"p1", b"p2", b"fetch", b"p3"]
        service.fill(2)
        assert [await peer.answer(), await peer.answer()] == [b"p3", b"other"]

    connected(scenario, PendingService())


def test_an_answer_that_is_awaited_behind_one_that_waits_comes_behind_it() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"p1", b"wait", b"p2"))
        await until(lambda: bool(service.awaited))
        service.awaited[0].set_result(b"wait")
        await until(lambda: len(service.pending) == 2)
        service.fill(1, 0)
        assert [await peer.answer() for _ in range(3)] == [b"p1", b"wait", b"p2"]

    connected(scenario, PendingService())


def test_a_client_whose_replies_wait_cannot_go_on_for_ever() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        sent = [b"p%d" % number for number in range(3 * REPLIES_MAX)]
        peer.writer.write(frames(*sent))
        await until(lambda: len(service.pending) >= REPLIES_MAX)
        await turns(50)
        held = len(service.pending)
        assert REPLIES_MAX <= held < REPLIES_MAX + 256
        while service.pending:
            service.fill(*range(len(service.pending)))
            service.pending.clear()
            await until(lambda: bool(service.pending) or len(service.handled) == len(sent))
        assert [await peer.answer() for _ in sent] == sent

    connected(scenario, PendingService())


def test_what_was_carried_out_is_answered_though_the_client_sends_no_more() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"p1", b"p2", b"last"))
        peer.writer.write_eof()
        await until(lambda: len(service.pending) == 2)
        await turns(20)
        assert not connection.is_closed
        service.fill(0, 1)
        assert [await peer.answer() for _ in range(3)] == [b"p1", b"p2", b"last"]
        await until(lambda: connection.is_closed)

    connected(scenario, PendingService())


def test_a_connection_that_is_to_be_closed_answers_what_came_before_first() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"p1", b"p2") + b"\xff\xff\xff\xff" + frames(b"p3"))
        await until(lambda: len(service.pending) == 2)
        await turns(20)
        assert not connection.is_closed
        service.fill(0)
        assert await peer.answer() == b"p1"
        service.fill(1)
        assert await peer.answer() == b"p2"
        await until(lambda: connection.is_closed)
        assert service.handled == [b"p1", b"p2"]

    connected(scenario, PendingService())


def test_a_reply_that_fails_closes_the_connection_behind_those_before_it() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"p1", b"p2", b"p3"))
        await until(lambda: len(service.pending) == 3)
        service.pending[1][1].fail("nobody thought of this")
        await turns(20)
        assert not connection.is_closed
        service.fill(0)
        assert await peer.answer() == b"p1"
        await until(lambda: connection.is_closed)

    connected(scenario, PendingService())


def test_replies_to_a_client_that_has_gone_are_forgotten() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"p1", b"p2"))
        await until(lambda: len(service.pending) == 2)
        connection.close()
        service.fill(0, 1)
        await turns(10)
        assert connection.is_closed

    connected(scenario, PendingService())


def test_the_replies_before_the_end_reach_a_client_that_reads_slowly() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        # More than the sockets take while nobody reads.
        sent = [b"p%d" % number + bytes(16 << 20) for number in range(2)]
        peer.writer.write(frames(*sent) + b"\xff\xff\xff\xff")
        await until(lambda: len(service.pending) == 2)
        service.fill(0, 1)
        await turns(20)
        assert [await peer.answer() for _ in sent] == sent
        await until(lambda: connection.is_closed)

    connected(scenario, PendingService())


class ClosingService(PendingService):
    """One that begins with ``c`` is carried out, and then the connection is to be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[memoryview] = []

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | LateFrame | Future[Any] | None:
        self.views.append(frame)
        if bytes(frame[:1]) == b"c":
            return self._close
        return super().handle(frame, connection)

    def _close(self) -> Frame:
        raise CloseConnection("this one wants it")


def test_what_is_carried_out_without_its_client_keeps_its_frame() -> None:
    async def scenario(service: ClosingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"p1", b"close", b"wait"))
        await until(lambda: len(service.views) == 3)
        peer.writer.write(bytes(1000))
        await peer.writer.drain()
        await turns(20)
        assert bytes(service.views[2]) == b"wait"
        service.fill(0)
        assert await peer.answer() == b"p1"
        await until(lambda: connection.is_closed)

    connected(scenario, ClosingService())


def test_an_answer_that_is_cancelled_closes_the_connection() -> None:
    async def scenario(service: PendingService, connection: Connection, peer: Peer) -> None:
        peer.writer.write(frames(b"wait"))
        await until(lambda: bool(service.awaited))
        service.awaited[0].cancel()
        await until(lambda: connection.is_closed)

    connected(scenario, PendingService())
