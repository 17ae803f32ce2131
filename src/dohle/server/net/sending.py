"""Sending replies: small pieces together in one call, records straight from their files."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable

from dohle.core.host import StreamSocket
from dohle.server.net.outcome import Chunk, CloseConnection, FileRecords, Frame

_SENDFILE_BYTES_MAX = 4 * 1024 * 1024
# A plain number: members of an enum are slow to look up and to combine.
_MSG_MORE = int(socket.MSG_MORE)
# How much is joined for one send; larger pieces are sent as they are.
_JOIN_BYTES_MAX = 64 * 1024


def joined(frames: Iterable[Frame]) -> list[Chunk]:
    """Return the chunks of frames, joined into pieces that are worth a system call."""
    found: list[Chunk] = []
    pieces: list[bytes | memoryview] = []
    size = 0
    for frame in frames:
        for chunk in frame:
            if isinstance(chunk, FileRecords):
                if pieces:
                    found.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                    pieces, size = [], 0
                found.append(chunk)
                continue
            size += len(chunk)
            if size > _JOIN_BYTES_MAX and pieces:
                found.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                pieces, size = [], len(chunk)
            pieces.append(chunk)
    if pieces:
        found.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    return found


def send_chunks(sock: StreamSocket, out: deque[Chunk]) -> bool:
    """Send as much as the socket takes, and leave the rest; tell whether the socket is full."""
    try:
        while out:
            chunk = out[0]
            if isinstance(chunk, FileRecords):
                size = chunk.size
                asked = size if size < _SENDFILE_BYTES_MAX else _SENDFILE_BYTES_MAX
                sent = chunk.file.send_to(sock, chunk.position, asked)
                if sent < size:
                    if sent == 0:
                        raise CloseConnection("a segment ended while it was being sent")
                    chunk.advance(sent)
                    if sent < asked:
                        # The socket is full: another call would only return that.
                        return True
                    continue
            else:
                # Small pieces were joined before: what follows is in a file, or large.
                sent = sock.send(chunk, _MSG_MORE if len(out) > 1 else 0)
                if sent < len(chunk):
                    out[0] = memoryview(chunk)[sent:]
                    return True
            out.popleft()
    except (BlockingIOError, InterruptedError):
        return True
    return False
