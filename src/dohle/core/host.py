"""The seam to the machine: network, time, chance, threads and limits.

``Host`` is what a client needs of the machine it runs on, and most of what a node needs;
``dohle.server.host`` adds the disks. ``SystemHost`` is the real one, and decides nothing.
The simulator (``dohle.testing.simulation``) has another, under which the same code runs in virtual
time.

There is one clock: intervals are measured on the time of the loop, by which timers go off too.
Nothing but a host makes threads, sockets or random numbers.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from ssl import SSLContext
from typing import Any, Protocol, TypeVar

from dohle.core.seams import Clock, Rng, SystemClock, system_rng, thread_cpu_s

T = TypeVar("T")


class StreamSocket(Protocol):
    """A connected, non-blocking socket; failures are ``OSError``, as of the system's own."""

    def fileno(self) -> int:
        """Return the number by which the loop knows it; -1 after ``close``."""

    def recv_into(self, buffer: memoryview) -> int:
        """Take what has arrived, as far as it fits; 0 once the peer sends no more."""

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Send as much as there is room for; at least one byte, else BlockingIOError."""

    def setblocking(self, flag: bool) -> None:
        """Choose whether calls may wait."""

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option of the protocol below."""

    def close(self) -> None:
        """Close."""


class ServerSocket(Protocol):
    """A bound, non-blocking socket that connections come to."""

    def fileno(self) -> int:
        """Return the number by which the loop knows it; -1 after ``close``."""

    def accept(self) -> tuple[StreamSocket, Any]:
        """Take the next connection, with the address it comes from, or BlockingIOError."""

    def getsockname(self) -> Any:
        """Return the address it is bound to: host and port come first."""

    def close(self) -> None:
        """Close."""


class Descriptor(Protocol):
    """A descriptor that nothing is done with."""

    def close(self) -> None:
        """Give it back, for a file or a socket that needs one."""


class ThreadPool(Protocol):
    """Threads for one kind of work, which waits for nobody else's."""

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do blocking work beside the loop."""

    def close(self) -> None:
        """Wait for what runs, and let the threads go."""


class Host(Protocol):
    """A machine, as far as it has no disks."""

    @property
    def clock(self) -> Clock:
        """The one clock: to be asked on the loop only."""

    @property
    def rng(self) -> Rng:
        """Where chance comes from."""

    def listen(self, host: str, port: int, backlog: int) -> ServerSocket:
        """Bind an address, on which connections may then come; port 0 is any free one."""

    async def connect(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: SSLContext | None = None,
    ) -> None:
        """Connect to an address, with TLS or without, and give the connection to a protocol."""

    def run_in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do blocking work beside the loop, in threads that all share."""

    def thread_pool(self, count: int, name: str, *, may_hang: bool = False) -> ThreadPool:
        """Return up to ``count`` threads for work of one kind.

        Where that ``may_hang``, for it waits for another machine, nobody waits for its end: neither
        who closes the pool nor the end of the process.
        """

    def open_files_max(self) -> int:
        """Return how many files and sockets may be open at the same time now."""

    def thread_cpu_s(self) -> float | None:
        """Return the CPU time of the thread that asks; None if there is no such thing."""

    def spare_descriptor(self) -> Descriptor:
        """Take a descriptor for when there are no others left; OSError if there is none now."""


class SystemThreadPool:
    """Threads of the operating system, made when they are first needed."""

    def __init__(self, count: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do blocking work beside the loop."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Wait for what runs."""
        self._threads.shutdown()


class DaemonThreadPool:
    """Threads of the operating system that nobody waits for."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = self._unfinished = 0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do blocking work beside the loop."""
        outcome: Future[T] = Future()
        with self._lock:
            self._unfinished += 1
            if self._started < min(self._unfinished, self._count):
                start_daemon_thread(self._serve, f"{self._name}_{self._started}")
                self._started += 1
        self._jobs.put(partial(_run, work, outcome))
        return asyncio.wrap_future(outcome)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            # What it has found is not kept until there is another.
            del job
            with self._lock:
                self._unfinished -= 1

    def close(self) -> None:
        """Let the threads go when they have come to their end."""
        for _ in range(self._count):
            self._jobs.put(None)


def _run(work: Callable[[], T], outcome: Future[T]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        outcome.set_exception(error)
    else:
        outcome.set_result(result)


class SystemHost:
    """The machine this runs on."""

    def __init__(self, *, clock: Clock | None = None, rng: Rng | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.rng = rng or system_rng()

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        """Bind an address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(backlog)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return sock

    async def connect(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: SSLContext | None = None,
    ) -> None:
        """Connect to an address."""
        await asyncio.get_running_loop().create_connection(protocol, host, port, ssl=tls)

    def run_in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do blocking work in the loop's own threads."""
        return asyncio.get_running_loop().run_in_executor(None, work)

    def thread_pool(self, count: int, name: str, *, may_hang: bool = False) -> ThreadPool:
        """Return threads for work of one kind."""
        return DaemonThreadPool(count, name) if may_hang else SystemThreadPool(count, name)

    def open_files_max(self) -> int:
        """Return the limit of open files that is in force."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def thread_cpu_s(self) -> float | None:
        """Ask the system."""
        return thread_cpu_s()

    def spare_descriptor(self) -> socket.socket:
        """Make a socket that is not connected to anything."""
        return socket.socket()


def start_daemon_thread(work: Callable[[], None], name: str) -> None:
    """Do work that never ends beside everything else; the end of the process does not wait."""
    threading.Thread(target=work, name=name, daemon=True).start()
