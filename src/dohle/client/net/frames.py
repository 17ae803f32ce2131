"""Frames over a stream: the bytes of a connection in, whole responses out. Knows no requests.

Rules it keeps:

- Bytes are received into a buffer that is reused. A small frame is copied out of it; a large one
  gets its own memory, into which its rest is received directly. That memory is used for the next
  large frame if nobody looks at it any more: new memory has to be filled with zeros first.
- A frame larger than allowed is refused before memory is allocated for it.
- Every frame returned owns its memory, so that its records can be read at any later time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from dohle.protocol.errors import MalformedMessage
from dohle.protocol.framing import SIZE_BYTES, frame_size
from dohle.protocol.schema import Buffer

_BUFFER_BYTES = 256 * 1024
#: From this size on, receiving into a frame's own memory is cheaper than copying it.
_LARGE_BYTES = 64 * 1024


class FrameProtocol(asyncio.BufferedProtocol):
    """Splits what arrives into frames; reports when writing must pause and the connection's end."""

    def __init__(
        self,
        on_frame: Callable[[Buffer], None],
        on_lost: Callable[[Exception | None], None],
        frame_bytes_max: int,
        kept_bytes_max: int = 2 * 1024 * 1024,
    ) -> None:
        """Pass on frames; memory of up to ``kept_bytes_max`` is kept for the next large one."""
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._frame_bytes_max = frame_bytes_max
        self._kept_bytes_max = kept_bytes_max
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._end = 0
        self._large: memoryview | None = None
        self._kept = bytearray()
        self._large_end = 0
        self._transport: asyncio.Transport | None = None
        #: Set while the peer accepts data.
        self.writable = asyncio.Event()
        self.writable.set()
        #: Set once the connection is gone.
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's transports are not asyncio's classes, but behave like one of them.
        self._transport = cast(asyncio.Transport, transport)

    @property
    def transport(self) -> asyncio.Transport:
        """The transport of the connection."""
        assert self._transport is not None, "there is no connection yet"
        return self._transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go."""
        if self._large is not None:
            return self._large[self._large_end :]
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the frames that are complete now."""
        if self._large is not None:
            self._large_end += nbytes
            if self._large_end == len(self._large):
                frame, self._large = self._large, None
                self._on_frame(frame)
            return
        self._end += nbytes
        try:
            self._cut_frames()
        except MalformedMessage as error:
            self._end = 0
            self._on_lost(error)
            self.transport.abort()

    def _cut_frames(self) -> None:
        start, end, buffer = 0, self._end, self._buffer
        while end - start >= SIZE_BYTES:
            size = frame_size(buffer, start, self._frame_bytes_max)
            body = start + SIZE_BYTES
            if end - body >= size:
                start = body + size
                self._on_frame(bytes(buffer[body:start]))
                continue
            if size >= _LARGE_BYTES:
                self._large = self._memory(size)
                self._large_end = end - body
                self._large[: self._large_end] = buffer[body:end]
                start = end
            break
        # The rest is the head of a small frame: it always fits.
        rest = end - start
        if start and rest:
            buffer[:rest] = bytes(buffer[start:end])
        self._end = rest

    def _memory(self, size: int) -> memoryview:
        """Return memory for a large frame, whatever is in it."""
        kept = self._kept
        if size > len(kept) or _is_in_use(kept):
            kept = bytearray(size)
            if size <= self._kept_bytes_max:
                self._kept = kept
        return memoryview(kept)[:size]

    def eof_received(self) -> bool:
        """Close when the peer does."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner, once."""
        self.lost.set()
        self.writable.set()
        self._on_lost(exc)

    def pause_writing(self) -> None:
        """Stop: the peer reads more slowly than we write."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self.writable.set()


def _is_in_use(memory: bytearray) -> bool:
    """Tell whether there is a view of it: while there is one, its size cannot change."""
    try:
        last = memory.pop()
    except BufferError:
        return True
    memory.append(last)
    return False
