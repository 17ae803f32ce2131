"""What comes of a request: how handlers answer and what a connection is given to send."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Any

from dohle.protocol.codec.unsigned_varint import RecordsElsewhere
from dohle.protocol.schema import Response
from dohle.storage.files import File
from dohle.storage.segment.segment import LogSlice


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

#: Called when the appends of this read event have been written: only then is it known what to say.
Late = Callable[[], Response | None]

#: What a handler returns: the response, a later one, or one that waits for something to happen.
Answer = Response | Late | Future[Any] | None


class CloseConnection(Exception):
    """The request is such that there is nothing to answer: the connection is closed."""
