"""What comes of a request: how handlers answer and what a connection is given to send."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.protocol.codec.unsigned_varint import RecordsElsewhere
from dohle.protocol.schema import Response
from dohle.storage.files import File
from dohle.storage.segment.segment_file import LogSlice


class FileRecords(RecordsElsewhere):
    """Record batches that stay in their file until ``sendfile`` takes them to the socket.

    It stands in a response where bytes would, and has a length like them.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, piece: LogSlice) -> None:
        self.file: File
        self.file, self.position, self.size, _ = piece

    def __len__(self) -> int:
        return self.size

    def advance(self, count: int) -> None:
        """Take note that ``count`` bytes were sent."""
        self.position += count
        self.size -= count


#: A piece of a response frame.
Chunk = bytes | memoryview | FileRecords

#: The chunks of one whole frame; empty if the request gets no answer.
Frame = list[Chunk]


class PendingFrame:
    """A reply that waits for something to happen elsewhere, when its request was carried out.

    So does a produce request with acks=all, whose records are written here and yet to be committed.
    It is filled once; whoever fills it need not know whether the client is still there.
    """

    __slots__ = ("failure", "frame", "on_filled")

    def __init__(self) -> None:
        self.frame: Frame | None = None
        #: Why there will be no frame: the connection is closed.
        self.failure: str | None = None
        #: Set by who wants to know.
        self.on_filled: Callable[[PendingFrame], None] | None = None

    def fill(self, frame: Frame) -> None:
        """Say what to reply."""
        self.frame = frame
        if self.on_filled is not None:
            self.on_filled(self)

    def fail(self, reason: str) -> None:
        """Say that there is nothing to reply: the connection is to be closed."""
        self.failure = reason
        if self.on_filled is not None:
            self.on_filled(self)


class Gate:
    """What many replies wait for together: the commit of what one write has brought."""

    __slots__ = ("code", "on_open")

    def __init__(self) -> None:
        #: How it has ended; None before that.
        self.code: ErrorCode | None = None
        self.on_open: list[Callable[[], None]] = []

    def open(self, code: ErrorCode) -> None:
        """Let the replies be made."""
        self.code = code
        for tell in self.on_open:
            tell()
        self.on_open.clear()


#: Called when the appends of this read event have been written: only then is it known what to say,
#: or that it takes longer to tell.
#: One that returns a gate is called again when that is open, with the gate's code.
LateFrame = Callable[..., Frame | PendingFrame | Gate]

#: The same of a handler, which leaves the framing to the dispatcher.
Late = Callable[[], Response | Future[Any] | Coroutine[Any, Any, Response | None] | None]

#: What a handler returns: the response, a later one, or one that waits for something to happen.
Answer = Response | Late | Future[Any] | None


class CloseConnection(Exception):
    """The request is such that there is nothing to answer: the connection is closed."""
