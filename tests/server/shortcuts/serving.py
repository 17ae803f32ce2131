"""Learning a shortcut from a frame, and serving a frame by it, as the dispatcher does both."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from typing import Any

from dohle.protocol.apis import find_api
from dohle.protocol.framing import parse_request_header
from dohle.records.batch import ATTRIBUTES_AT, batches
from dohle.server.broker import BrokerServer
from dohle.server.net.outcome import Frame, LateFrame
from dohle.server.net.shortcut import Served, Shortcut
from dohle.storage import log_read
from dohle.storage.log import Log
from dohle.storage.log_values import Isolation


def served(frame: memoryview) -> Served:
    """Return what the dispatcher hands to whoever learns a shortcut."""
    head = parse_request_header(frame)
    request_class = find_api(head.api_key).request()
    request, _ = request_class.decode(head.version, frame, head.body_offset)
    return Served(frame, head.body_offset, head.version, head.client_id or "", request)


def serve(shortcut: Shortcut, broker: BrokerServer, frame: memoryview) -> Frame | LateFrame | None:
    """Serve a frame; None if it does not fit, or has to take the slow path all the same."""
    fields: Any = shortcut.fits(frame)
    if fields is None:
        return None
    # Nothing takes so long that it is done later.
    broker.turns.time = lambda: 0.0
    reply = shortcut.handle(broker, fields)
    assert not isinstance(reply, Future)
    return reply


def serve_late(
    shortcut: Shortcut, broker: BrokerServer, frame: memoryview
) -> Callable[[], Frame] | None:
    """Serve a frame whose answer is made when everything is written."""
    late = serve(shortcut, broker, frame)
    assert not isinstance(late, list)
    return None if late is None else lambda: _made(late)


def _made(late: LateFrame) -> Frame:
    frame = late()
    assert isinstance(frame, list)
    return frame


def joined(frame: Frame) -> bytes:
    """Return an answer all of which is in memory."""
    return b"".join(chunk for chunk in frame if isinstance(chunk, bytes))


def written_since(log: Log, offset: int) -> list[bytes]:
    """Return the batches of a log, each from its attributes on: behind offsets and checksum."""
    found = []
    while offset < log.log_end_offset:
        piece = log_read.read(log, offset, 1 << 20, Isolation.LOG_END, min_one_batch=True).slice
        assert piece is not None
        for batch in batches(memoryview(piece.read())):
            batch.ensure_valid()
            found.append(bytes(batch.buffer[ATTRIBUTES_AT:]))
            offset = batch.last_offset + 1
    return found
