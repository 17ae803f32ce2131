"""An event loop in virtual time, of which the world runs one callback at a time.

It schedules as asyncio's selector loop does: in one iteration come the callbacks that were asked
for before, then those of sockets that are ready, then the timers that are due. Three things are
different: time is the world's; whoever drives it may stop between any two callbacks, and drop it
there, as if the process had been killed; and timers due at the same time go off in the order in
which they were set, which a heap of asyncio's handles does not promise.

Tasks and futures are asyncio's own. There are no threads: blocking work goes through the host.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import Any, Protocol

_SECOND_NS = 1_000_000_000
#: After so many tasks were made, those that are done are let go of.
_TASKS_SWEPT = 512
#: How often a coroutine that is to end may wait for something else.
_CLOSES_MAX = 100


class VirtualTime:
    """The time of a world, in nanoseconds since it began."""

    __slots__ = ("now_ns",)

    def __init__(self) -> None:
        self.now_ns = 0


class Pollable(Protocol):
    """A socket, as far as the loop waits for it."""

    def is_readable(self) -> bool:
        """Tell whether reading (or accepting) would not block."""

    def is_writable(self) -> bool:
        """Tell whether writing would not block."""


class _Handle(asyncio.TimerHandle):
    """A callback that is to be run, soon or at a time."""

    __slots__ = ("_arguments", "_due_s", "_function", "_inside")

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        inside: Context | None,
        due_s: float = 0.0,
    ) -> None:
        self._function: Callable[..., object] | None = function
        self._arguments = arguments
        self._inside = inside
        self._due_s = due_s

    def cancel(self) -> None:
        """Do not run it."""
        self._function = None
        self._arguments = ()

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self._function is None

    def when(self) -> float:
        """Return the time it is set for."""
        return self._due_s

    def run(self) -> None:
        """Call it."""
        if self._function is None:
            return
        if self._inside is None:
            self._function(*self._arguments)
        else:
            self._inside.run(self._function, *self._arguments)

    def __repr__(self) -> str:
        return f"<{self._function} at {self._due_s}>"

    __hash__ = object.__hash__
    __eq__ = object.__eq__


#: How a loop connects: to a host and a port, with a protocol's factory.
Connector = Callable[[Callable[[], asyncio.BaseProtocol], str, int], Awaitable[Any]]


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The loop of one process.

    It has what nodes and clients use of a loop; the rest is asyncio's NotImplementedError. (The
    types of arguments of callbacks are asyncio's in a notation of newer Pythons.)
    """

    def __init__(
        self,
        name: str,
        time: VirtualTime,
        origin_ns: int,
        rng: Random,
        connector: Connector,
        on_error: Callable[[dict[str, Any]], None],
    ) -> None:
        self.name = name
        self._time = time
        #: The loop's clock shows another time than the wall's, so that nobody takes one for it.
        self._origin_ns = origin_ns
        self._rng = rng
        self._connector = connector
        self._on_error = on_error
        self._ready: deque[_Handle] = deque()
        #: How many of the ready ones belong to the iteration that has begun.
        self._left = 0
        self._timers: list[tuple[int, int, _Handle]] = []
        self._timer_count = 0
        self._pollables: dict[int, Pollable] = {}
        self._readers: dict[int, _Handle] = {}
        self._writers: dict[int, _Handle] = {}
        #: Sockets of which something may have become ready, in the order it happened.
        self._marked: dict[int, None] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._task_count = 0
        self._is_closed = False

    # What the world does

    def has_work(self) -> bool:
        """Tell whether there is something to run now."""
        if self._ready:
            return True
        if self._timers and self._timers[0][0] <= self._time.now_ns:
            return True
        if self._marked:
            for number in list(self._marked):
                if self._is_ready(number):
                    return True
                del self._marked[number]
        return False

    def next_due_ns(self) -> int | None:
        """Return when the next timer goes off."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def step(self) -> None:
        """Run one callback."""
        if not self._left:
            self._begin_iteration()
            if not self._left:
                return
        self._left -= 1
        handle = self._ready.popleft()
        events._set_running_loop(self)
        try:
            handle.run()
        except Exception as error:
            self.call_exception_handler({"message": "a callback failed", "exception": error})
        finally:
            events._set_running_loop(None)

    def _begin_iteration(self) -> None:
        if self._marked:
            numbers = [number for number in self._marked if self._is_ready(number)]
            if len(numbers) > 1:
                # A selector promises no order.
                self._rng.shuffle(numbers)
            for number in numbers:
                pollable = self._pollables[number]
                if number in self._readers and pollable.is_readable():
                    self._ready.append(self._readers[number])
                if number in self._writers and pollable.is_writable():
                    self._ready.append(self._writers[number])
            self._marked = dict.fromkeys(numbers)
        timers, now_ns = self._timers, self._time.now_ns
        while timers and timers[0][0] <= now_ns:
            self._ready.append(heapq.heappop(timers)[2])
        self._left = len(self._ready)

    def _is_ready(self, number: int) -> bool:
        pollable = self._pollables.get(number)
        return pollable is not None and (
            (number in self._readers and pollable.is_readable())
            or (number in self._writers and pollable.is_writable())
        )

    def drop(self) -> None:
        """End the process: nothing of it runs any more.

        Its coroutines are closed one by one, for what they would do when the collector finds them
        is done at a moment that differs from run to run. Whatever that raises is of no interest:
        their disk and their sockets are gone.
        """
        self._is_closed = True
        self._on_error = lambda context: None
        events._set_running_loop(self)
        try:
            # What is closed may begin something else, which is then closed too.
            for _ in range(_CLOSES_MAX):
                tasks, self._tasks = self._tasks, []
                for task in tasks:
                    if not task.done():
                        _close(task.get_coro())
                if not self._tasks:
                    break
        finally:
            events._set_running_loop(None)
        self._ready.clear()
        self._left = 0
        for container in (self._timers, self._marked, self._readers, self._writers):
            container.clear()
        self._pollables.clear()

    def mark(self, number: int) -> None:
        """Take note that a socket may have become ready."""
        if number in self._pollables:
            self._marked[number] = None

    def watch(self, number: int, pollable: Pollable) -> None:
        """Get to know a socket by its number."""
        self._pollables[number] = pollable

    def unwatch(self, number: int) -> None:
        """Forget a socket."""
        self._pollables.pop(number, None)
        self._marked.pop(number, None)

    # What asyncio and its users do
    # (The overrides that are ignored below have plain signatures where asyncio's type stubs tie
    # each argument's type to the callback's, and leave out keywords that nothing here uses.)

    def time(self) -> float:
        """Return the time of this process's clock, in seconds."""
        return (self._time.now_ns + self._origin_ns) / _SECOND_NS

    def monotonic_ns(self) -> int:
        """Return the same, exactly."""
        return self._time.now_ns + self._origin_ns

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run it in the next iteration."""
        handle = _Handle(callback, args, context)
        if not self._is_closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run it after a while."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run it at a time of this loop's clock."""
        handle = _Handle(callback, args, context, when)
        if not self._is_closed:
            due_ns = round(when * _SECOND_NS) - self._origin_ns
            self._timer_count += 1
            heapq.heappush(self._timers, (due_ns, self._timer_count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Make a task; its name does not depend on what ran in this process before."""
        self._task_count += 1
        if self._task_count % _TASKS_SWEPT == 0:
            self._tasks = [task for task in self._tasks if not task.done()]
        name = name or f"{self.name}-{self._task_count}"
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def add_reader(  # type: ignore[override]
        self, fd: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call it whenever the socket can be read."""
        self._readers[fd] = _Handle(callback, args, None)
        self._marked[fd] = None

    def remove_reader(self, fd: Any) -> bool:
        """Do so no longer."""
        return _cancelled(self._readers.pop(fd, None))

    def add_writer(  # type: ignore[override]
        self, fd: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call it whenever the socket can be written."""
        self._writers[fd] = _Handle(callback, args, None)
        self._marked[fd] = None

    def remove_writer(self, fd: Any) -> bool:
        """Do so no longer."""
        return _cancelled(self._writers.pop(fd, None))

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **options: Any,
    ) -> Any:
        """Connect within the simulated network."""
        return await self._connector(protocol_factory, host, port)

    def get_debug(self) -> bool:
        """Be quick."""
        return False

    def is_running(self) -> bool:
        """Tell whether it can be used."""
        return not self._is_closed

    def is_closed(self) -> bool:
        """Tell whether it was dropped."""
        return self._is_closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell the world of an error that nobody has caught."""
        self._on_error(context)


def _close(coroutine: Any) -> None:
    """End a coroutine for good; one that waits in its ``finally`` is told again."""
    for _ in range(_CLOSES_MAX):
        with suppress(BaseException):
            coroutine.close()
        if coroutine.cr_frame is None:
            return


def _cancelled(handle: _Handle | None) -> bool:
    if handle is None:
        return False
    # It may be among those that are ready.
    handle.cancel()
    return True
