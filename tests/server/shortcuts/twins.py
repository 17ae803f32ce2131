"""The same requests by two ways: on a connection that learns, and each on a new one.

A new connection has learnt nothing, so its requests take the slow path. What both are answered must
be the same, byte for byte, whatever the requests: proper ones, and such with bytes changed, cut off
or put in anywhere. Requests go to a dispatcher of a node directly, as a connection hands them over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from dohle.core.seams import ManualClock
from dohle.protocol.errors import MalformedMessage
from dohle.server.net.connection import Connection
from dohle.server.net.dispatch import Dispatcher
from dohle.server.net.outcome import CloseConnection, FileRecords, Frame, Gate, PendingFrame
from dohle.server.net.shortcut import Shortcut
from dohle.server.node import Node
from dohle.server.registry import all_handlers
from tests.server.faults import until, watched_node
from tests.server.net.connected import turns
from tests.server.wire import Wire

#: What comes of a request that is not answered now.
CLOSED, WAITS = b"closed", b"waits"
#: How long a task is given that may wait for a commit.
_WAITS_S = 0.01
# The API key stays: another one is another request, of which nothing has been learnt.
_KEY_BYTES = 2


class Mutation(NamedTuple):
    """A change of a frame: some bytes at a place become others."""

    at: int
    removed: int
    put: bytes

    def of(self, frame: bytes) -> bytes:
        """Return the frame with the change."""
        at = _KEY_BYTES + self.at % (len(frame) - _KEY_BYTES)
        return frame[:at] + self.put + frame[at + self.removed :]


#: Mostly one byte becomes another, often one of the last; now and then bytes go or come.
MUTATIONS: st.SearchStrategy[Mutation] = st.one_of(
    st.builds(Mutation, st.integers(0, 200), st.just(1), st.binary(min_size=1, max_size=1)),
    st.builds(Mutation, st.integers(0, 200), st.just(1), st.sampled_from([b"\0", b"\1", b"\xff"])),
    st.builds(Mutation, st.integers(-4, -1), st.just(1), st.sampled_from([b"\1", b"\2"])),
    st.builds(Mutation, st.integers(-12, -1), st.integers(0, 2), st.binary(max_size=2)),
    st.builds(Mutation, st.integers(0, 200), st.integers(0, 9), st.binary(max_size=9)),
)


class Way:
    """One of the ways to a dispatcher."""

    def __init__(self, node: Node, connection: Connection, *, learns: bool) -> None:
        loop = asyncio.get_running_loop()
        self._dispatcher = Dispatcher(loop, node.broker, all_handlers())
        self._connection = connection
        self._learns = learns

    def forget(self) -> None:
        """Forget what was learnt."""
        self._connection.shortcuts.clear()

    def shortcut(self, api_key: int) -> Shortcut | None:
        """Return what it has learnt."""
        return self._connection.shortcuts.get(api_key)

    async def send(self, frame: bytes, wake: Callable[[], None]) -> bytes:
        """Return what comes of a request, the frame of its answer if there is one.

        If the answer waits for a commit, ``wake`` ends that.
        """
        if not self._learns:
            self.forget()
        # Whatever came before, it may be learnt from.
        self._connection.unlearnt.clear()
        dispatcher = self._dispatcher
        try:
            reply = dispatcher.handle(memoryview(bytearray(frame)), self._connection)
            dispatcher.settle()
            if isinstance(reply, asyncio.Task):
                task = reply
                while not task.done():
                    await asyncio.wait([task], timeout=_WAITS_S)
                    wake()
                reply = dispatcher.complete(task)
            elif isinstance(reply, asyncio.Future):
                dispatcher.forget(reply)
                return WAITS
            assert reply is not None, "nothing is before it"
            late = reply
            made = late if isinstance(late, list) else late()
            if isinstance(made, Gate):
                assert not isinstance(late, list)
                wake()
                assert made.code is not None, "all that it waits for has ended"
                made = late(made.code)
            if isinstance(made, PendingFrame):
                pending = made
                # It begins to wait in a later turn.
                await turns(5)
                wake()
                await until(lambda: pending.frame is not None or pending.failure is not None)
                if pending.frame is None:
                    return CLOSED
                made = pending.frame
            assert isinstance(made, list)
            return _bytes_of(made)
        except (CloseConnection, MalformedMessage):
            return CLOSED


def _bytes_of(frame: Frame) -> bytes:
    return b"".join(
        chunk.file.read_at(chunk.position, chunk.size) if isinstance(chunk, FileRecords) else chunk
        for chunk in frame
    )


def _nothing() -> None:
    """Nobody waits for a commit."""


class Twins:
    """Both ways to one node."""

    def __init__(self, node: Node, connections: list[Connection]) -> None:
        self.node = node
        #: How many requests were sent when a shortcut had served one.
        self.served = 0
        self._learning = Way(node, connections[0], learns=True)
        self._slow = Way(node, connections[1], learns=False)

    def let_work_take(self, *, is_long: bool) -> None:
        """Let every look at the clock find that a slice is over, or none."""
        ticks = count()
        self.node.broker.turns.time = lambda: next(ticks) if is_long else 0.0

    async def compare(
        self,
        api_key: int,
        frames: list[bytes],
        twin: Callable[[bytes], bytes] = bytes,
        written: Callable[[], bytes] = bytes,
        wakes: Sequence[Callable[[], None]] = (_nothing, _nothing),
    ) -> None:
        """Send frames by both ways; each time they must come to the same.

        ``twin`` turns what the first says and is told into what the second does; ``written`` tells
        what was written since it was last asked; ``wakes`` end the waits for commits, of each way.
        """
        self._learning.forget()
        for frame in frames:
            answer = await self._learning.send(frame, wakes[0]), written()
            slow = await self._slow.send(twin(frame), wakes[1]), written()
            assert tuple(map(twin, answer)) == slow, frame
            learnt = self._learning.shortcut(api_key)
            self.served += learnt is not None and learnt.served > 0


@contextmanager
def on_twins(
    path: Path, properties: dict[str, str] | None = None
) -> Iterator[tuple[asyncio.Runner, Twins]]:
    """Run a node whose clock stands still, for many examples."""
    with asyncio.Runner() as runner:
        life = watched_node(path, [], properties, clock=ManualClock())
        node = runner.run(life.__aenter__())

        async def twins() -> Twins:
            wires.extend([await Wire.connect(node), await Wire.connect(node)])
            await until(lambda: len(node.listeners[0].connections) == len(wires))
            return Twins(node, [*node.listeners[0].connections])

        async def end() -> None:
            for wire in wires:
                await wire.close()
            await life.__aexit__(None, None, None)

        wires: list[Wire] = []
        try:
            yield runner, runner.run(twins())
        finally:
            runner.run(end())
