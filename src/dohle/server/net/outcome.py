"""The outcome of a request: what handlers return, and what a connection is given to send."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from dohle.core.errors import ErrorCode
from dohle.protocol.codec.unsigned_varint import RecordsElsewhere
from dohle.protocol.schema import Response
from dohle.storage.files import File
from dohle.storage.segment.segment_file import LogSlice

SEGMENT_ENDED = "a segment ended while it was being sent"


class FileRecords(RecordsElsewhere):
    """Record batches that stay in their file until ``sendfile`` takes them to the socket.

    It takes the place of bytes in a response, and has a length as they have.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, piece: LogSlice) -> None:
        self.file: File
        self.file, self.position, self.size, _ = piece

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """Copy them out."""
        data = self.file.read_at(self.position, self.size)
        if len(data) < self.size:
            raise CloseConnection(SEGMENT_ENDED)
        return data

    def advance(self, count: int) -> None:
        """Note that ``count`` bytes were sent."""
        self.position += count
        self.size -= count


class EncodedResponse(NamedTuple):
    """A response that is encoded already, for the version of the request that it answers."""

    api_key: int
    body: bytes


#: A piece of a response frame.
Chunk = bytes | memoryview | FileRecords

#: The chunks of one whole frame; empty if the request gets no answer.
Frame = list[Chunk]


class PendingFrame:
    """The reply to a request that is carried out, but waits for something to happen elsewhere.

    An example is a produce request with acks=all: its records are written here, but not committed
    yet. It is filled once; whoever fills it need not know whether the client is still there.
    """

    __slots__ = ("failure", "frame", "on_filled")

    def __init__(self) -> None:
        self.frame: Frame | None = None
        #: Why there will be no frame: the connection is closed.
        self.failure: str | None = None
        #: Called when it is filled or has failed.
        self.on_filled: Callable[[PendingFrame], None] | None = None

    def fill(self, frame: Frame) -> None:
        """Set the reply."""
        self.frame = frame
        if self.on_filled is not None:
            self.on_filled(self)

    def fail(self, reason: str) -> None:
        """Give up the reply: the connection must be closed."""
        self.failure = reason
        if self.on_filled is not None:
            self.on_filled(self)


class Gate:
    """What many replies wait for together: the commit of the appends of one write."""

    __slots__ = ("code", "on_open")

    def __init__(self) -> None:
        #: How the wait ended; None before that.
        self.code: ErrorCode | None = None
        self.on_open: list[Callable[[], None]] = []

    def open(self, code: ErrorCode) -> None:
        """Let the replies be made."""
        self.code = code
        for tell in self.on_open:
            tell()
        self.on_open.clear()


#: Makes the frame after the appends of this read event have been written: only then is the answer
#: known, or that it takes longer. If it returns a gate, it is called again with the gate's code
#: when that is open.
LateFrame = Callable[..., Frame | PendingFrame | Gate]

#: The same for a handler, which leaves the framing to the dispatcher.
Late = Callable[[], Response | Future[Any] | Coroutine[Any, Any, Response | None] | None]

#: What a handler returns: the response, a later one, or one that waits for something to happen.
Answer = Response | Late | Future[Any] | None


class LongAnswer(NamedTuple):
    """A response that waits for something to happen, and may take long to be encoded."""

    future: Future[Any]


class CloseConnection(Exception):
    """The request cannot be answered: the connection is closed."""
