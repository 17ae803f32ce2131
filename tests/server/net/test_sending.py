"""Sending: what is put together, what is sent as it is, and how much in one turn."""

from __future__ import annotations

import socket
from collections import deque
from typing import cast

from dohle.core.host import StreamSocket
from dohle.server.net.outcome import Chunk
from dohle.server.net.sending import Sender, send_chunks
from dohle.server.net.turns import Turns, Usage
from tests.server.net.stopped_loop import StoppedLoop, run, turn_of_the_loop


class Socket:
    """Takes so many bytes, and keeps what it was given."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.given: list[bytes | memoryview] = []

    def send(self, data: bytes | memoryview, flags: int) -> int:
        if not self.room:
            raise BlockingIOError
        sent = min(len(data), self.room)
        self.room -= sent
        self.given.append(data if sent == len(data) else bytes(data[:sent]))
        return sent


def send(sock: Socket, out: deque[Chunk]) -> bool:
    return send_chunks(cast("StreamSocket", sock), out)


def test_small_chunks_are_joined_and_large_ones_are_not_copied() -> None:
    large = bytes(100_000)
    sock = Socket(1_000_000)
    assert not send(sock, deque([b"a", b"b", b"c", large, b"d", b"e"]))
    assert sock.given == [b"abc", large, b"de"]
    assert sock.given[1] is large


def test_what_the_socket_does_not_take_is_left() -> None:
    sock, out = Socket(4), deque[Chunk]([b"abc", b"def", bytes(100_000)])
    assert send(sock, out)
    assert b"".join(sock.given) == b"abcd"
    assert send(sock, out)
    sock.room = 1_000_000
    assert not send(sock, out)
    assert b"".join(sock.given) == b"abcdef" + bytes(100_000)


def test_a_client_that_takes_everything_is_not_sent_everything_in_one_turn() -> None:
    piece = bytes(5_000)
    sock, out = Socket(1 << 40), deque[Chunk]([piece] * 10_000)
    turns = 1
    while send(sock, out):
        turns += 1
    assert sum(map(len, sock.given)) == 10_000 * len(piece)
    assert turns > 10


def test_chunks_that_are_the_same_object_are_joined_only_as_they_are_sent() -> None:
    piece = bytes(5_000)
    sock, out = Socket(3_000), deque[Chunk]([piece] * 10_000)
    assert send(sock, out)
    assert sum(chunk is piece for chunk in out) > 9_900


def test_a_lone_answer_that_does_not_fit_is_sent_on_when_there_is_room() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            usage = Usage(loop.time())
            sender = Sender(loop, ours, turns, usage, lambda begun, now: None, failures.append)
            sent = b""
            while not sender.is_blocked:
                answer = bytes([len(sent) % 251]) * 30_000
                sender.send([[answer]])
                sent += answer
            # Behind what is left.
            sender.send([[b"the end"]])
            sent += b"the end"
            assert sender.bytes_out == len(sent)
            got = b""
            while len(got) < len(sent):
                got += theirs.recv(100_000)
                await turn_of_the_loop()
            assert got == sent
            assert (sender.is_blocked, len(sender)) == (False, 0)

    failures: list[str] = []
    run(scenario)
    assert not failures


def test_a_lone_answer_to_a_client_that_has_gone_tells_of_the_failure() -> None:
    async def scenario(loop: StoppedLoop, turns: Turns) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            theirs.close()
            usage = Usage(loop.time())
            sender = Sender(loop, ours, turns, usage, lambda begun, now: None, failures.append)
            sender.send([[b"answer"]])

    failures: list[str] = []
    run(scenario)
    assert len(failures) == 1
