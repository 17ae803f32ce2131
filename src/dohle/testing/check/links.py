"""The network between clients and nodes, and between nodes: proxies that can be cut.

A node advertises its proxies, so that all that others say to it goes through them. A proxy knows
who has connected: clients come by a listener of their own, and of other nodes the process that owns
the other end of a connection is looked up. So each way of each link can be cut by itself.

A link that is cut keeps what is sent, as a network does that sends it again. When it is mended, the
bytes arrive if both ends still hold the connection, and are lost otherwise.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

from dohle.protocol.apis import ApiKey

#: The clients, where nodes are named by their ids.
CLIENTS = 0

_HOST = "127.0.0.1"
_PIECE_BYTES = 65_536
#: How many pieces a link that is cut keeps of a connection; then the sender has to wait.
_PIECES_MAX = 64
_FRAME_BYTES_MAX = 16 << 20
_LOOK_AGAIN_S = 0.02
_ANSWER_S_MAX = 10.0

T = TypeVar("T")
Way = tuple[int, int]


class LinkError(Exception):
    """Something that was expected of a link did not happen in time."""


@dataclass(slots=True)
class Held:
    """A request that is held back, and what became of it."""

    version: int = -1
    is_held: bool = False
    is_delivered: bool = False
    is_answered: bool = False


class _Listener(NamedTuple):
    """What a proxy stands for."""

    target: int
    port: int
    is_for_clients: bool


@dataclass(eq=False, slots=True)
class _Connection:
    """One connection through a proxy."""

    source: int
    target: int
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter | None = None
    #: What of it is held back.
    held: Held | None = None
    is_broken: asyncio.Event = field(default_factory=asyncio.Event)

    def way(self, *, is_forth: bool) -> Way:
        """Return from whom to whom bytes go."""
        return (self.source, self.target) if is_forth else (self.target, self.source)

    def abort(self) -> None:
        """Break it: both ends are told by a reset, and lose what is on its way."""
        for writer in self._writers:
            # One that has ended by itself has no socket any more.
            with suppress(OSError):
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self.is_broken.set()

    def close(self) -> None:
        """End it in good order."""
        for writer in self._writers:
            writer.close()

    @property
    def _writers(self) -> list[asyncio.StreamWriter]:
        return [writer for writer in (self.near, self.far) if writer is not None]


class Links:
    """Proxies on a thread and a loop of their own."""

    def __init__(self, owner: Callable[[int], int | None]) -> None:
        """``owner`` tells which node has opened a connection from a port."""
        self._owner = owner
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: frozenset[Way] = frozenset()
        self._changed = asyncio.Event()
        self._wanted: tuple[str, ApiKey] | None = None
        self._held = Held()
        self._released = asyncio.Event()

    def add(self, target: int, port: int, *, is_for_clients: bool) -> int:
        """Make a proxy for a port of a node, and return the proxy's port."""
        listener = _Listener(target, port, is_for_clients)

        async def serve() -> int:
            server = await asyncio.start_server(partial(self._accept, listener), _HOST, 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return self._call(serve())

    def cut(self, ways: Iterable[Way]) -> None:
        """Let nothing through from the first to the second of each, and nothing else be cut."""
        self._call(self._set_cut(frozenset(ways)))

    def mend(self, *, reset: bool) -> None:
        """Let everything through again; ``reset`` breaks the connections that were cut."""

        async def mend() -> None:
            if reset:
                for each in list(self._connections):
                    if {(each.source, each.target), (each.target, each.source)} & self._cut:
                        each.abort()
            await self._set_cut(frozenset())

        self._call(mend())

    async def _set_cut(self, ways: frozenset[Way]) -> None:
        self._cut = ways
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def connection_count(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    # A request that comes late

    def hold(self, client_id: str, api_key: ApiKey) -> Held:
        """Hold back the next such request of this client, even if the client goes."""

        async def hold() -> Held:
            self._held, self._released = Held(), asyncio.Event()
            self._wanted = client_id, api_key
            return self._held

        return self._call(hold())

    def release(self, timeout_s: float) -> None:
        """Deliver what is held back, and wait until the node has answered it."""
        if not self._held.is_held:
            raise LinkError("the request that was to be held back has not come")
        self._loop.call_soon_threadsafe(self._released.set)
        deadline_s = monotonic() + timeout_s
        while not self._held.is_answered:
            if monotonic() > deadline_s:
                raise LinkError("the request that was held back has not been answered")
            sleep(_LOOK_AGAIN_S)

    # Connections

    def _accept(
        self, listener: _Listener, reader: asyncio.StreamReader, near: asyncio.StreamWriter
    ) -> None:
        task = self._loop.create_task(self._serve(listener, reader, near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, listener: _Listener, reader: asyncio.StreamReader, near: asyncio.StreamWriter
    ) -> None:
        peer = near.get_extra_info("peername")[1]
        source = CLIENTS if listener.is_for_clients else self._owner(peer)
        # Of one that is gone already nobody knows whose it was.
        connection = _Connection(-1 if source is None else source, listener.target, near)
        self._connections.add(connection)
        broken = asyncio.create_task(connection.is_broken.wait())
        tasks: list[asyncio.Task[Any]] = [broken]
        try:
            await self._until_open(connection.way(is_forth=True))
            back, connection.far = await asyncio.open_connection(_HOST, listener.port)
            forth = _frames(reader) if listener.is_for_clients else _pieces(reader)
            pumps = [
                asyncio.create_task(self._pump(connection, forth, connection.far, is_forth=True)),
                asyncio.create_task(self._pump(connection, _pieces(back), near, is_forth=False)),
            ]
            ended = asyncio.create_task(asyncio.wait(pumps))
            tasks += [*pumps, ended]
            await asyncio.wait([ended, broken], return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            # Nobody listens there, or this is the end of all.
            pass
        finally:
            self._connections.discard(connection)
            connection.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _pump(
        self,
        connection: _Connection,
        pieces: AsyncIterator[bytes],
        writer: asyncio.StreamWriter,
        *,
        is_forth: bool,
    ) -> None:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_MAX)
        way = connection.way(is_forth=is_forth)
        reading = asyncio.create_task(self._read(connection, pieces, queue, way))
        try:
            while (piece := await queue.get()) is not None:
                await self._until_open(way)
                if is_forth and self._is_wanted(piece):
                    connection.held = self._held
                    await self._hold_back(self._held)
                elif not is_forth and connection.held is not None:
                    connection.held.is_answered = connection.held.is_delivered
                writer.write(piece)
                await writer.drain()
            if is_forth and connection.held is not None:
                await _until_answered(connection.held)
            writer.close()
        except OSError:
            connection.is_broken.set()
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _hold_back(self, held: Held) -> None:
        held.is_held = True
        await self._released.wait()
        held.is_delivered = True

    async def _read(
        self,
        connection: _Connection,
        pieces: AsyncIterator[bytes],
        queue: asyncio.Queue[bytes | None],
        way: Way,
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            async for piece in pieces:
                await queue.put(piece)
        if way in self._cut:
            # What is on its way is lost with whoever has sent it.
            connection.abort()
        await queue.put(None)

    async def _until_open(self, way: Way) -> None:
        while way in self._cut:
            await self._changed.wait()

    def _is_wanted(self, frame: bytes) -> bool:
        if self._wanted is None:
            return False
        api_key, version, _, length = struct.unpack_from(">hhih", frame, 4)
        client_id = frame[14 : 14 + max(length, 0)].decode(errors="replace")
        if self._wanted != (client_id, api_key):
            return False
        self._wanted = None
        self._held.version = version
        return True

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Break all connections, and end the thread."""

        async def end() -> None:
            for server in self._servers:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _until_answered(held: Held) -> None:
    deadline_s = monotonic() + _ANSWER_S_MAX
    while not held.is_answered and monotonic() < deadline_s:
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(_PIECE_BYTES):
        yield piece


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Read requests as wholes, so that one can be held back."""
    while True:
        size = await reader.readexactly(4)
        length = int.from_bytes(size)
        if length > _FRAME_BYTES_MAX:
            raise ConnectionError(f"a request of {length} bytes")
        yield size + await reader.readexactly(length)
