"""Sending replies: small pieces together in one call, records straight from their files.

Pieces are put together when they are sent, and not before: a long answer may say the same again and
again, in pieces that are the same object, or have very many short pieces of records, and its client
may not read it.
"""

from __future__ import annotations

import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dohle.core.host import StreamSocket
from dohle.server.net.outcome import SEGMENT_ENDED, Chunk, CloseConnection, FileRecords, Frame
from dohle.server.net.reply_queue import frame_size
from dohle.server.net.turns import Turns, Usage

#: Without this limit, a client that reads fast would keep the loop until it has everything.
_TURN_BYTES_MAX = 2 * 1024 * 1024
# A plain number: members of an enum are slow to look up and to combine.
_MSG_MORE = int(socket.MSG_MORE)
# How much is joined for one send; larger pieces are sent as they are.
_JOIN_BYTES_MAX = 64 * 1024
#: Of records in a file: below this, copying is cheaper than a system call of their own.
SENDFILE_BYTES_MIN = 16 * 1024


class Sender:
    """What a connection has to send, and when it goes on with that."""

    __slots__ = (
        "_fd",
        "_is_in_queue",
        "_loop",
        "_on_failure",
        "_on_sent",
        "_out",
        "_socket",
        "_transfer",
        "_turns",
        "_usage",
        "bytes_out",
        "is_blocked",
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: StreamSocket,
        turns: Turns,
        usage: Usage,
        on_sent: Callable[[float, float], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Send by a socket; ``on_sent`` is told from when to when what was left was sent on."""
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._turns = turns
        self._usage = usage
        self._on_sent = on_sent
        self._on_failure = on_failure
        self._out: deque[Chunk] = deque()
        self._transfer: Callable[[Any, deque[Chunk]], bool] = send_chunks
        #: What was sent, or is about to be.
        self.bytes_out = 0
        #: Whether some is left to send, and the loop watches for room in the socket's buffer.
        self.is_blocked = False
        #: Whether it waits for its turn to send on.
        self._is_in_queue = False

    def __len__(self) -> int:
        return len(self._out)

    def send(self, frames: Sequence[Frame]) -> None:
        """Send frames, or as much of them as the socket takes; the rest when it has room."""
        out = self._out
        if len(frames) == 1 and len(frames[0]) == 1 and not out:
            # Most answers: there is nothing to put together.
            chunk = frames[0][0]
            if type(chunk) is bytes and (size := len(chunk)) <= _JOIN_BYTES_MAX:
                self.bytes_out += size
                try:
                    sent = self._socket.send(chunk)
                except OSError:
                    # Whoever sends the rest sees what it is about.
                    sent = 0
                if sent < size:
                    out.append(memoryview(chunk)[sent:])
                    self._send()
                return
        for frame in frames:
            self.bytes_out += len(frame[0]) if len(frame) == 1 else frame_size(frame)
            out += frame
        if out and not self.is_blocked:
            self._send()

    def close(self) -> None:
        """Send no more."""
        if self.is_blocked:
            self._loop.remove_writer(self._fd)
        self._out.clear()
        # The callbacks refer to this, too: neither would be freed before the next full collection.
        self._on_sent, self._on_failure = _not_told_when, _not_told_why

    def _send(self) -> None:
        try:
            is_blocked = self._transfer(self._socket, self._out)
        except (OSError, CloseConnection) as error:
            self._on_failure(str(error))
            return
        if is_blocked != self.is_blocked:
            self.is_blocked = is_blocked
            if is_blocked:
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        if not self._turns.is_crowded:
            self._send_on()
        elif not self._is_in_queue:
            self._is_in_queue = True
            self._turns.wait(self._usage.of_late(self._turns.time()), self._send_in_turn)

    def _send_in_turn(self) -> None:
        self._is_in_queue = False
        # Nothing is left of what was sent to a client that has gone.
        if self.is_blocked and len(self):
            self._send_on()

    def _send_on(self) -> None:
        begun = self._turns.time()
        self._send()
        self._on_sent(begun, self._turns.time())


def _not_told_when(begun: float, now: float) -> None:
    """Nobody wants to know any more."""


def _not_told_why(reason: str) -> None:
    """Nobody wants to know any more."""


def send_chunks(sock: StreamSocket, out: deque[Chunk]) -> bool:
    """Send as much as the socket takes, and is sent in one turn; tell whether some is left."""
    left = _TURN_BYTES_MAX
    try:
        while out:
            if left <= 0:
                return True
            chunk = out[0]
            if isinstance(chunk, FileRecords) and not (len(out) > 1 and _is_short(chunk)):
                size = chunk.size
                asked = size if size < left else left
                sent = chunk.file.send_to(sock, chunk.position, asked)
                if sent < size:
                    if sent == 0:
                        raise CloseConnection(SEGMENT_ENDED)
                    chunk.advance(sent)
                    # The socket is full, or the turn over.
                    return True
            else:
                if isinstance(chunk, FileRecords) or (
                    len(out) > 1 and len(chunk) < _JOIN_BYTES_MAX
                ):
                    chunk = _join_first(out)
                sent = sock.send(chunk, _MSG_MORE if len(out) > 1 else 0)
                if sent < len(chunk):
                    out[0] = memoryview(chunk)[sent:]
                    return True
            left -= sent
            out.popleft()
    except (BlockingIOError, InterruptedError):
        return True
    return False


def _is_short(records: FileRecords) -> bool:
    return records.size < SENDFILE_BYTES_MIN


def _join_first(out: deque[Chunk]) -> bytes | memoryview:
    """Put the first chunks together, as far as they are worth one system call."""
    pieces: list[bytes | memoryview] = []
    size = 0
    while out:
        chunk = out[0]
        if isinstance(chunk, FileRecords) and not _is_short(chunk):
            break
        size += len(chunk)
        if size > _JOIN_BYTES_MAX and pieces:
            break
        pieces.append(chunk.read() if isinstance(chunk, FileRecords) else chunk)
        out.popleft()
    joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    out.appendleft(joined)
    return joined
