"""A proxy between clients and the broker that holds back one request of a chosen client.

The broker advertises the proxy's address, so that all that clients say goes through it. The request
that is held back is delivered later, even if its client has gone; as on any connection, what comes
behind it waits too.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from dohle.protocol.apis import ApiKey
from tests.interop.waiting import wait_until

START_DEADLINE_S = 10.0


class HoldingProxy:
    """Runs on a thread and a loop of its own."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._started = threading.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Event
        self._released: asyncio.Event
        self._wanted: tuple[str, ApiKey] | None = None
        #: How many requests were held back, and how many of them delivered.
        self.held = 0
        self.delivered = 0
        self.port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hold(self, client_id: str, api_key: ApiKey) -> None:
        """Hold back the next such request of this client."""
        self._loop.call_soon_threadsafe(self._released.clear)
        self._wanted = client_id, api_key

    def await_held(self) -> None:
        """Wait until it is being held back."""
        wait_until(lambda: self.held > self.delivered)

    def release(self) -> None:
        """Deliver what is held back; return when it is on its way to the broker."""
        self._wanted = None
        self._loop.call_soon_threadsafe(self._released.set)
        wait_until(lambda: self.held == self.delivered)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopping, self._released = asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connect(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        broker, forth = await asyncio.open_connection("127.0.0.1", self._target_port)
        answers = asyncio.ensure_future(self._answers(broker, back))
        try:
            await self._requests(client, forth)
        except asyncio.CancelledError:
            # The end of this proxy; the server's own callback need not hear of it.
            pass
        finally:
            answers.cancel()
            for writer in (forth, back):
                writer.close()
            self._connections.discard(task)

    async def _requests(self, client: asyncio.StreamReader, forth: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = await client.readexactly(4)
                frame = await client.readexactly(struct.unpack(">i", size)[0])
                is_held = self._is_wanted(frame)
                if is_held:
                    self.held += 1
                    await self._released.wait()
                forth.write(size + frame)
                await forth.drain()
                self.delivered += is_held

    def _is_wanted(self, frame: bytes) -> bool:
        api_key, _, _, length = struct.unpack_from(">hhih", frame)
        client_id = frame[10 : 10 + max(length, 0)].decode()
        if self._wanted != (client_id, api_key):
            return False
        self._wanted = None
        return True

    async def _answers(self, broker: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await broker.read(65536):
                back.write(piece)
                await back.drain()
            back.close()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_DEADLINE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
