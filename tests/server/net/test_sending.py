"""Sending: what is put together, what is sent as it is, and how much in one turn."""

from __future__ import annotations

from collections import deque
from typing import cast

from dohle.core.host import StreamSocket
from dohle.server.net.outcome import Chunk
from dohle.server.net.sending import send_chunks


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
