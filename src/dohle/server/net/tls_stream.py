"""TLS over a socket, for one connection whose handshake is done: encrypts, decrypts, few calls.

It is used like the socket itself. OpenSSL works on memory: what arrives is taken with one system
call however many records it has, and several records leave with one. ``sendfile`` is not possible,
so records of a file are read and encrypted in pieces. What is encrypted cannot be taken back, so no
more is encrypted while the socket does not take what there is.

OpenSSL reads on until it finds a byte of the application. A record can be a request for new keys
instead, in 27 bytes, and takes it as long as a kilobyte of data: so it is given a few records at a
time, and a client that sends nothing else is cut off.
"""

from __future__ import annotations

import ssl
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from dohle.core.host import StreamSocket
from dohle.server.net.outcome import SEGMENT_ENDED, Chunk, CloseConnection, FileRecords, Frame
from dohle.server.net.reply_queue import frame_size
from dohle.server.net.sending import Sender
from dohle.server.net.turns import Turns, Usage

#: How much is encrypted for one system call.
PIECE_BYTES = 256 * 1024
#: And in one turn of the loop: about two milliseconds.
_TURN_BYTES_MAX = 1024 * 1024
#: How many records are decrypted at a time: two milliseconds, if each of them asks for new keys.
_RECORDS_AT_ONCE = 64
#: And so many may come without a byte of the application.
_EMPTY_RECORDS_MAX = 512
#: How much TLS itself may have to send to a client that does not read; replies add a piece.
_UNSENT_MAX = 2 * PIECE_BYTES
#: Of a record: its kind, the version, and how much follows.
_HEADER_BYTES = 5
_NOTHING = memoryview(b"")


class TlsSession(NamedTuple):
    """The state of OpenSSL for one connection, with the memory that it reads from and writes to."""

    engine: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO

    @classmethod
    def begin(cls, context: ssl.SSLContext) -> TlsSession:
        """Begin the session of a server."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        return cls(context.wrap_bio(incoming, outgoing, server_side=True), incoming, outgoing)


class TlsStream:
    """A socket whose bytes are encrypted."""

    def __init__(self, sock: StreamSocket, session: TlsSession, scratch: memoryview) -> None:
        """``scratch`` is memory for what arrives, which all connections of a loop share."""
        self._socket = sock
        self._ssl, self._incoming, self._outgoing = session
        self._scratch = scratch
        #: Encrypted bytes that the socket has not taken yet.
        self._unsent = _NOTHING
        #: Whether the peer has said that it sends no more.
        self._has_ended = False
        #: What has arrived and is not given to OpenSSL yet, from the beginning of a record on.
        self._waiting: memoryview = memoryview(self._incoming.read())
        #: How many bytes are missing of the record that OpenSSL has the beginning of.
        self._record_left = 0
        self._empty_records = 0
        #: Whether OpenSSL has something that ``recv_into`` had no room for, or may have.
        self._is_holding = False
        #: Whether something has arrived that ``recv_into`` was not asked for, or may have.
        self.has_more = self._has_waiting_record

    def fileno(self) -> int:
        """Return the number by which the loop knows the socket."""
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        """Choose whether calls may wait."""
        self._socket.setblocking(flag)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option of the protocol below."""
        self._socket.setsockopt(level, option, value)

    def recv_into(self, buffer: memoryview) -> int:
        """Take what has arrived, as far as it fits; 0 once the peer sends no more."""
        count = self._decrypt_into(buffer) if self._is_holding else 0
        if not count and not self._has_ended:
            if self._has_waiting_record:
                self._give(self._waiting)
            else:
                received = self._socket.recv_into(self._scratch)
                if received == 0:
                    return 0
                self._take(self._scratch[:received])
            count = self._decrypt_into(buffer)
            if self._outgoing.pending:
                # An answer of TLS itself, such as new keys.
                self._answer()
        if self._has_ended:
            # The end is told when all before it was taken.
            self.has_more = bool(count)
            return count
        self.has_more = self._is_holding or self._has_waiting_record
        if not count:
            if self._empty_records > _EMPTY_RECORDS_MAX:
                raise ConnectionAbortedError("very many TLS records without data")
            raise BlockingIOError
        self._empty_records = 0
        return count

    @property
    def _has_waiting_record(self) -> bool:
        return len(self._waiting) >= _HEADER_BYTES

    def _take(self, arrived: memoryview) -> None:
        """Take what has arrived out of the memory that all connections share."""
        if self._waiting:
            # The beginning of a header.
            arrived = memoryview(b"".join((self._waiting, arrived)))
        self._give(arrived)
        if self._waiting:
            self._waiting = memoryview(bytes(self._waiting))

    def _give(self, data: memoryview) -> None:
        """Give what has arrived to OpenSSL, but for records beyond the number for one time."""
        at, size, records = self._record_left, len(data), 0
        while at + _HEADER_BYTES <= size and records < _RECORDS_AT_ONCE:
            at += _HEADER_BYTES + (data[at + 3] << 8 | data[at + 4])
            records += 1
        self._empty_records += records
        if at >= size:
            self._incoming.write(data)
            self._record_left, self._waiting = at - size, _NOTHING
        else:
            self._incoming.write(data[:at])
            self._record_left, self._waiting = 0, data[at:]

    def _answer(self) -> None:
        self.flush()
        if len(self._unsent) > _UNSENT_MAX:
            raise ConnectionAbortedError("the client does not read the answers of TLS")

    def _decrypt_into(self, buffer: memoryview) -> int:
        # What it returns is a number if it is given memory; its declaration does not say so.
        read: Any = self._ssl.read
        incoming, size, count = self._incoming, len(buffer), 0
        self._is_holding = False
        try:
            while count < size:
                # A record at a time.
                found: int = read(size - count, buffer[count:])
                if found == 0:
                    self._has_ended = True
                    return count
                count += found
                if not incoming.pending and not self._ssl.pending():
                    return count
        except ssl.SSLWantReadError:
            return count
        self._is_holding = True
        return count

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Encrypt and send; BlockingIOError while the socket has not taken what was sent before."""
        if not self.flush():
            raise BlockingIOError
        piece = data[:PIECE_BYTES]
        self.encrypt(piece)
        self.flush()
        return len(piece)

    def encrypt(self, data: bytes | memoryview) -> None:
        """Encrypt, to be sent by ``flush``."""
        if data:
            self._ssl.write(data)

    def flush(self) -> bool:
        """Send what is encrypted, as far as the socket takes it; tell whether it took all."""
        if self._outgoing.pending:
            pending = self._outgoing.read()
            # The rest of before is not sent yet if there was an answer of TLS meanwhile.
            self._unsent = memoryview(
                b"".join((self._unsent, pending)) if self._unsent else pending
            )
        if self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[sent:]
        return not self._unsent

    @property
    def is_flushed(self) -> bool:
        """Whether the socket has taken all that was encrypted."""
        return not self._unsent

    def close(self) -> None:
        """Say goodbye if that is possible without waiting, and close."""
        with suppress(OSError, ValueError):
            self._ssl.unwrap()
        with suppress(OSError):
            self.flush()
        self._socket.close()


def send_encrypted(stream: TlsStream, out: deque[Chunk]) -> bool:
    """Send as much as the socket takes, and is sent in one turn; tell whether some is left."""
    left = _TURN_BYTES_MAX
    try:
        while stream.flush():
            if not out:
                return False
            if left <= 0:
                return True
            piece = take_piece(out)
            left -= len(piece)
            stream.encrypt(piece)
    except (BlockingIOError, InterruptedError):
        pass
    return True


def take_piece(out: deque[Chunk]) -> bytes | memoryview:
    """Take the first bytes out, as many as are encrypted at a time."""
    pieces: list[bytes | memoryview] = []
    room = PIECE_BYTES
    while out and room:
        chunk = out[0]
        size = min(len(chunk), room)
        if isinstance(chunk, FileRecords):
            data = chunk.file.read_at(chunk.position, size)
            if len(data) < size:
                raise CloseConnection(SEGMENT_ENDED)
            pieces.append(data)
            chunk.advance(size)
            if not chunk.size:
                out.popleft()
        elif size == len(chunk):
            pieces.append(chunk)
            out.popleft()
        else:
            view = memoryview(chunk)
            pieces.append(view[:size])
            out[0] = view[size:]
        room -= size
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class TlsSender(Sender):
    """Sends replies encrypted."""

    __slots__ = ("_stream",)

    def __init__(
        self,
        loop: AbstractEventLoop,
        stream: StreamSocket,
        turns: Turns,
        usage: Usage,
        on_sent: Callable[[float, float], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Send by a stream; ``on_sent`` is told from when to when what was left was sent on."""
        assert isinstance(stream, TlsStream), "nothing may leave that is not encrypted"
        super().__init__(loop, stream, turns, usage, on_sent, on_failure)
        self._stream = stream
        self._transfer = send_encrypted

    def __len__(self) -> int:
        return len(self._out) or not self._stream.is_flushed

    def send(self, frames: Sequence[Frame]) -> None:
        """Send frames, or as much of them as the socket takes; the rest when it has room."""
        for frame in frames:
            self.bytes_out += frame_size(frame)
            self._out += frame
        if not self.is_blocked:
            self._send()
