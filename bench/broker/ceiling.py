"""What a broker cannot be faster than: bare system calls, ``python -m bench.broker.ceiling FILE``.

The process listens on a free port of 127.0.0.1, which it prints, and serves one command at a time.
A connection begins with a command (``COMMAND``); what follows depends on it:

- ``WRITE``: what is received is written behind what is in the file; one answer at the end.
- ``SENDFILE``: the end of the file is sent by ``sendfile``, a piece at a time. After these two the
  connection takes another of them: a file begins with its connection, and is warm like it.
- ``APPEND``: as many connections as told, the further ones without a command, wait in one epoll.
  Of what they send each frame is found, the checksum of its batch computed and an offset put in;
  all is written at once, and each frame gets an answer: the least a broker in Python does.
- ``READ``: the same, but each frame is answered with a piece of the file.
- ``RELAY``: what is received is written, answered, and sent on to a second connection.

No header is looked into, nothing is decided or kept. It ends when its standard input is closed.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import crc32c

from bench.pacing import unpaced

WRITE, SENDFILE, APPEND, READ, RELAY = range(5)

#: What is to be done, and two numbers: total and piece; connections, and where in a frame its
#: batch is (or how large a piece is).
COMMAND = struct.Struct(">Bqq")
#: About what a Produce request is answered with.
BARE_ANSWER = struct.pack(">i", 56) + bytes(56)
_BUFFER_BYTES = 256 * 1024
_CRC_END = 21
_IOV_MAX = 1024
_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


def serve(path: str, listening: socket.socket) -> None:
    """Serve commands for ever."""
    while True:
        sock, _ = listening.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = sock.recv(COMMAND.size, socket.MSG_WAITALL)
            if len(head) < COMMAND.size:
                continue
            kind, first, second = COMMAND.unpack(head)
            if kind in (WRITE, SENDFILE):
                _bulk(path, sock, head)
            elif kind == RELAY:
                _relay(path, sock, listening)
            else:
                handle = _append if kind == APPEND else _read
                _answer(path, sock, listening, first, partial(handle, second))


@contextmanager
def _new_file(path: str) -> Iterator[int]:
    """Begin a file anew: the pages of the last one are given back, as those of a new log.

    It is another file: one that was truncated is written to the disk when it is closed (ext4).
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        yield fd
    finally:
        os.close(fd)


def _bulk(path: str, sock: socket.socket, head: bytes) -> None:
    buffer = memoryview(b"")
    size = 0
    with _new_file(path) as fd:
        while len(head) == COMMAND.size:
            kind, total, piece = COMMAND.unpack(head)
            if kind == WRITE:
                if len(buffer) != piece:
                    buffer = memoryview(bytearray(piece))
                _write(fd, sock, total, buffer)
                size += total
            else:
                _sendfile(fd, sock, size - total, total, piece)
            head = sock.recv(COMMAND.size, socket.MSG_WAITALL)


def _write(fd: int, sock: socket.socket, total: int, buffer: memoryview) -> None:
    left = total
    while left and (count := sock.recv_into(buffer)):
        os.write(fd, buffer[:count])
        left -= count
    sock.send(BARE_ANSWER)


def _sendfile(fd: int, sock: socket.socket, position: int, total: int, piece: int) -> None:
    end, out = position + total, sock.fileno()
    while position < end:
        position += os.sendfile(out, fd, position, min(piece, end - position))


def _frames(buffer: bytearray, end: int) -> list[tuple[int, int]]:
    """Return where the whole frames begin and end."""
    found, start = [], 0
    while end - start >= _SIZE.size:
        following = start + _SIZE.size + _SIZE.unpack_from(buffer, start)[0]
        if following > end:
            break
        found.append((start, following))
        start = following
    return found


def _append(batch_at: int, fd: int, view: memoryview, frames: list[tuple[int, int]]) -> bytes:
    batches = []
    for start, end in frames:
        batch = view[start + batch_at : end]
        crc32c.crc32c(batch[_CRC_END:])
        _OFFSET.pack_into(batch, 0, start)
        batches.append(batch)
    for first in range(0, len(batches), _IOV_MAX):
        os.writev(fd, batches[first : first + _IOV_MAX])
    return BARE_ANSWER * len(batches)


def _read(piece: int, fd: int, view: memoryview, frames: list[tuple[int, int]]) -> bytes:
    head = _SIZE.pack(len(BARE_ANSWER) + piece) + BARE_ANSWER
    pieces: list[bytes] = []
    for _ in frames:
        pieces += (head, os.pread(fd, piece, 0))
    return b"".join(pieces)


class _Peer:
    """A connection, and its buffer up to where something was received."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0

    def serve(self, fd: int, handle: Callable[..., bytes]) -> bool:
        """Receive once, handle the frames and answer; False at the end."""
        count = self._sock.recv_into(self._view[self._end :])
        if not count:
            self._sock.close()
            return False
        end = self._end + count
        frames = _frames(self._buffer, end)
        if frames:
            self._sock.sendall(handle(fd, self._view, frames))
        start = frames[-1][1] if frames else 0
        self._view[: end - start] = self._view[start:end]
        self._end = end - start
        return True


def _answer(
    path: str,
    first: socket.socket,
    listening: socket.socket,
    connections: int,
    handle: Callable[..., bytes],
) -> None:
    peers = {first.fileno(): _Peer(first)}
    while len(peers) < connections:
        sock, _ = listening.accept()
        peers[sock.fileno()] = _Peer(sock)
    with _new_file(path) as fd, select.epoll() as epoll:
        os.write(fd, bytes(_BUFFER_BYTES))
        for number in peers:
            epoll.register(number, select.EPOLLIN)
        while peers:
            for number, _ in epoll.poll():
                if not peers[number].serve(fd, handle):
                    del peers[number]


def _relay(path: str, writer: socket.socket, listening: socket.socket) -> None:
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    reader, _ = listening.accept()
    reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with reader, _new_file(path) as fd:
        while count := writer.recv_into(buffer):
            os.write(fd, buffer[:count])
            reader.sendall(buffer[:count])
            writer.sendall(BARE_ANSWER)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def main(path: str) -> None:
    """Listen, tell where, serve."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        unpaced(listening)
        print(f"127.0.0.1:{listening.getsockname()[1]}", flush=True)
        serve(path, listening)


if __name__ == "__main__":
    main(*sys.argv[1:])
