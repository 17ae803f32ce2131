"""The HTTP port of a node: ``/metrics``, ``/healthz``, ``/readyz`` and ``/backup-cut``.

- ``/healthz``: 200 if the loop answers at all.
- ``/readyz``: 200 if clients are served, all log directories work and metadata can be changed; else
  503 and the reasons.
- ``/metrics``: gathered while it is sent, in slices of a few milliseconds, so that neither a scrape
  of very many partitions nor a slow reader costs others anything, or much memory. One scrape at a
  time; others wait for it.
- ``/backup-cut``: how far all logs have come at one moment, for ``dohle storage backup``
  (``dohle.storage.backup``). It only tells: whoever wants a copy must be able to read the files.

What a client may cost is bounded: the length of its request, the time it may take in all, and how
many there may be.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, CancelledError, Future, Lock, Task, TimerHandle
from collections.abc import Callable, Iterator
from contextlib import suppress
from os.path import abspath

from dohle.core.host import StreamSocket
from dohle.metrics.exposition import CONTENT_TYPE
from dohle.metrics.http import (
    HEAD_BYTES_MAX,
    BadRequest,
    HttpRequest,
    chunk,
    last_chunk,
    parse_head,
    response_head,
    text_response,
)
from dohle.server.host import NodeHost, ProcessUsage
from dohle.server.metrics.collect import collect
from dohle.server.metrics.health import problems
from dohle.server.metrics.log_counts import LogCounts
from dohle.server.metrics.sources import Sources
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.storage.backup import cut_lines

logger = logging.getLogger("dohle.server")

CONNECTIONS_MAX = 16
#: A request must have come, and its answer gone, in this time.
SECONDS_MAX = 30.0
_BACKLOG = 16
_CUT_TYPE = "application/x-ndjson"
_CHUNK_BYTES = 64 * 1024
#: How much is received of a request that is refused anyway, so that the refusal arrives.
_IGNORED_BYTES_MAX = 64 * 1024


class MetricsServer:
    """A bound port. ``start``, then ``stop``."""

    def __init__(
        self, loop: AbstractEventLoop, host: NodeHost, address: tuple[str, int], sources: Sources
    ) -> None:
        self._loop = loop
        self._host = host
        self._sources = sources
        self._logged = LogCounts()
        self._turn = Lock()
        self._connections: dict[Task[None], StreamSocket] = {}
        self._socket = host.listen(address[0] or "0.0.0.0", address[1], _BACKLOG)
        self.host, self.port = self._socket.getsockname()[:2]

    def start(self) -> None:
        """Begin to accept, and to measure what is measured for metrics only."""
        self._logged.start()
        self._sources.probe.start()
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def stop(self) -> None:
        """Close everything."""
        self._logged.stop()
        self._sources.probe.stop()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for task in list(self._connections):
            task.cancel()

    def _on_acceptable(self) -> None:
        try:
            sock, _ = self._socket.accept()
        except OSError:
            # The next scrape comes soon enough; being out of descriptors is logged elsewhere.
            return
        if len(self._connections) >= CONNECTIONS_MAX:
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._serve(sock))
        self._connections[task] = sock
        timer = self._loop.call_later(SECONDS_MAX, task.cancel)
        task.add_done_callback(lambda done: self._ended(done, timer))

    def _ended(self, task: Task[None], timer: TimerHandle) -> None:
        timer.cancel()
        self._connections.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a request for metrics failed. Please report this.", exc_info=error)

    # One connection

    async def _serve(self, sock: StreamSocket) -> None:
        with suppress(OSError, CancelledError):
            try:
                request = await self._receive(sock)
            except BadRequest as error:
                await self._send(sock, text_response(error.status, str(error)))
                await self._drain(sock)
                return
            if request is not None:
                await self._answer(sock, request)

    async def _receive(self, sock: StreamSocket) -> HttpRequest | None:
        received = bytearray()
        buffer = memoryview(bytearray(HEAD_BYTES_MAX))
        while (request := parse_head(received)) is None:
            count = await self._receive_some(sock, buffer)
            if count == 0:
                return None
            received += buffer[:count]
        return request

    async def _drain(self, sock: StreamSocket) -> None:
        """Take in some of what a client goes on to send: closing at once would reset it."""
        left, buffer = _IGNORED_BYTES_MAX, memoryview(bytearray(HEAD_BYTES_MAX))
        while left > 0 and (count := await self._receive_some(sock, buffer)):
            left -= count

    async def _answer(self, sock: StreamSocket, request: HttpRequest) -> None:
        match request.path:
            case "/metrics":
                await self._send(sock, response_head(200, CONTENT_TYPE, is_chunked=True))
                if request.method == "GET":
                    await self._send_metrics(sock)
                return
            case "/backup-cut" if self._sources.capture is not None and request.method == "GET":
                lines = cut_lines(self._sources.paths, self._sources.capture(), abspath)
                await self._send(sock, response_head(200, _CUT_TYPE, is_chunked=True))
                await self._send_pieces(sock, lines)
                return
            case "/backup-cut":
                answer = text_response(503, "the node is starting or stopping")
            case "/healthz":
                answer = text_response(200, "ok")
            case "/readyz":
                found = problems(self._sources)
                answer = text_response(503 if found else 200, "\n".join(found) or "ok")
            case _:
                answer = text_response(404, "there are /metrics, /healthz and /readyz")
        if request.method == "HEAD":
            answer = answer[: answer.index(b"\r\n\r\n") + 4]
        await self._send(sock, answer)

    async def _send_metrics(self, sock: StreamSocket) -> None:
        async with self._turn:
            sources = self._sources
            sources.usage, sources.disks = await self._host.run_in_thread(self._ask_system)
            await self._send_pieces(sock, collect(sources, self._logged))

    async def _send_pieces(self, sock: StreamSocket, pieces: Iterator[str]) -> None:
        """Send text that is made while it is sent, in slices."""
        broker = self._sources.broker
        slices = Slices(Turns(self._loop, self._host) if broker is None else broker.turns)
        unsent: list[str] = []
        size = 0
        for piece in pieces:
            if piece:
                unsent.append(piece)
                size += len(piece)
                if size >= _CHUNK_BYTES:
                    await self._send(sock, chunk("".join(unsent)))
                    unsent, size = [], 0
            await slices.give_way()
        if unsent:
            await self._send(sock, chunk("".join(unsent)))
        await self._send(sock, last_chunk())

    def _ask_system(self) -> tuple[ProcessUsage | None, dict[str, tuple[int, int]]]:
        """Ask what the system knows of the process and the disks; it may block."""
        disks = {}
        for path in self._sources.paths:
            with suppress(OSError):
                disks[path] = self._host.files.free_bytes(path)
        return self._host.process_usage(), disks

    # The socket

    async def _receive_some(self, sock: StreamSocket, buffer: memoryview) -> int:
        while True:
            try:
                return sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                await self._when(self._loop.add_reader, self._loop.remove_reader, sock)

    async def _send(self, sock: StreamSocket, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[sock.send(left) :]
            except (BlockingIOError, InterruptedError):
                await self._when(self._loop.add_writer, self._loop.remove_writer, sock)

    async def _when(
        self, watch: Callable[..., object], forget: Callable[[int], object], sock: StreamSocket
    ) -> None:
        """Wait until a socket is ready."""
        ready: Future[None] = self._loop.create_future()
        fd = sock.fileno()
        watch(fd, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            forget(fd)
