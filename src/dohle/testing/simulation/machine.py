"""A simulated machine: a disk, a clock, a place in the network, and one process at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, TypeVar

from dohle.core.host import Descriptor
from dohle.testing.simulation.files import SimulatedFileSystem
from dohle.testing.simulation.loop import SimulatedLoop
from dohle.testing.simulation.sockets import SimulatedServerSocket, SimulatedSocket

if TYPE_CHECKING:
    from dohle.testing.simulation.world import World

T = TypeVar("T")

#: When worlds begin, on the wall.
WALL_MS = 1_700_000_000_000
_OPEN_FILES_MAX = 64
_SHARED_THREADS = 1 << 16
_MS_NS = 1_000_000
_SECOND_NS = 1_000_000_000


class MachineClock:
    """A machine's clocks: that on the wall goes on through restarts, the other begins anew."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: By how much the wall clock is wrong.
        self.offset_ms = 0
        self.origin_ns = 0

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return WALL_MS + self.offset_ms + self._world.time.now_ns // _MS_NS

    def monotonic_ms(self) -> int:
        """Return the time of the process's loop."""
        return (self._world.time.now_ns + self.origin_ns) // _MS_NS

    def monotonic_s(self) -> float:
        """Return the same in seconds."""
        return (self._world.time.now_ns + self.origin_ns) / _SECOND_NS


@dataclass(slots=True)
class DiskSettings:
    """How slow a disk is; drawn once for each seed."""

    #: What blocking work in a thread takes on average.
    work_mean_ns: int = 500_000
    #: What a write or a sync on the loop takes.
    operation_ns: int = 20_000


class Machine:
    """One machine of a world."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.disk = DiskSettings()
        self.clock = MachineClock(world)
        self.files = SimulatedFileSystem(self.clock)
        self.files.observer = lambda operation, path, data: world.disk_operation(
            self, operation, path, data
        )
        self.sockets: dict[int, SimulatedSocket] = {}
        self.listening: list[SimulatedServerSocket] = []
        #: Connections whose bytes nobody could answer for want of power.
        self.unanswered: list[SimulatedSocket] = []
        self.has_power = True
        self.is_running = False
        self.paused_until_ns = 0
        #: How many processes there were.
        self.life = 0
        self.loop: SimulatedLoop
        self.host: SimulatedHost
        self.main: asyncio.Task[Any]
        self._world = world

    def start(self, program: Callable[[SimulatedHost], Coroutine[Any, Any, Any]]) -> None:
        """Start a process; its program runs until it ends or is killed."""
        assert not self.is_running, f"{self.name} runs"
        world = self._world
        self.has_power = self.is_running = True
        world.network.answer_for(self)
        self.life += 1
        self.paused_until_ns = 0
        rng = world.stream(f"{self.name}/{self.life}")
        self.clock.origin_ns = rng.randrange(1_000, 100_000) * _MS_NS * 1_000 - world.time.now_ns
        self.loop = SimulatedLoop(  # type: ignore[abstract]
            self.name,
            world.time,
            self.clock.origin_ns,
            rng,
            lambda factory, host, port: world.network.connect(self, factory, host, port),
            lambda context: world.error(self, context),
        )
        self.host = SimulatedHost(world, self, rng)
        world.note("start", self.name, f"life {self.life}")
        self.main = self.loop.create_task(program(self.host), name=f"{self.name}-main")

    def kill(self) -> None:
        """Kill the process: what it has written stays."""
        if self.is_running:
            self._world.note("kill", self.name, f"life {self.life}")
            self._end()
            self._world.network.process_died(self)
            self.files.crash()

    def power_off(self, rng: Random) -> None:
        """Cut the power: chance decides what is found of that which was not synced."""
        if self.is_running:
            self._world.note("power off", self.name, f"life {self.life}")
            self._end()
        self.has_power = False
        self._world.network.power_lost(self)
        if rng.random() < 0.5:
            self.files.power_loss(rng)
        else:
            self.files.power_loss_everything_unsynced_lost()

    def ended(self) -> None:
        """Take note that the program has come to its end."""
        self._world.note("end", self.name, f"life {self.life}")
        self._end()
        self._world.network.process_died(self)
        self.files.crash()

    def _end(self) -> None:
        self.is_running = False
        # Before the coroutines are closed: nothing they do then may reach the disk.
        self.files.die()
        self.loop.drop()

    def request_stop(self) -> None:
        """Ask the program to end, as SIGTERM does."""
        if self.is_running:
            self._world.note("stop", self.name, f"life {self.life}")
            self.host.stopping.set()

    def pause(self, duration_ns: int) -> None:
        """Let the process stand still, as SIGSTOP does; its kernel goes on."""
        self._world.note("pause", self.name, f"{duration_ns // _MS_NS} ms")
        self.paused_until_ns = self._world.time.now_ns + duration_ns


class SimulatedHost:
    """What a process sees of its machine: the host of a node or of a client."""

    def __init__(self, world: World, machine: Machine, rng: Random) -> None:
        self.machine = machine
        self.files = machine.files
        self.clock = machine.clock
        self.rng = rng
        #: Set when the program is asked to end.
        self.stopping = asyncio.Event()
        self._network = world.network
        self._shared = self.thread_pool(_SHARED_THREADS, "shared")

    def listen(self, host: str, port: int, backlog: int) -> SimulatedServerSocket:
        """Bind a port of the machine."""
        return self._network.listen(self.machine, port, backlog, host)

    async def connect(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: SSLContext | None = None,
    ) -> None:
        """Connect to another machine."""
        assert tls is None, "there is nobody to hide from"
        await self._network.connect(self.machine, protocol, host, port)

    def run_in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do blocking work a little later."""
        return self._shared.run(work)

    def thread_pool(self, count: int, name: str, *, may_hang: bool = False) -> SimulatedThreadPool:
        """Return so many threads."""
        return SimulatedThreadPool(self.machine, self.rng, count)

    def process_usage(self) -> None:
        """Tell nothing: there is no process."""

    def start_child(self, module: str) -> None:
        """Start nothing: there are no processes."""

    def thread_cpu_s(self) -> None:
        """Tell nothing: there is no thread."""

    def open_files_max(self) -> int:
        """Return so few that segments' files are closed and opened again all the time."""
        return _OPEN_FILES_MAX

    def spare_descriptor(self) -> Descriptor:
        """Return one that is never needed: nothing here runs out of them."""
        return _SpareDescriptor()


class _SpareDescriptor:
    """Stands for nothing."""

    def close(self) -> None:
        """Do nothing."""


class SimulatedThreadPool:
    """Blocking work, done at once after the time it takes, in an order that chance decides."""

    def __init__(self, machine: Machine, rng: Random, count: int) -> None:
        self._machine = machine
        self._rng = rng
        self._free = count
        self._waiting: deque[Callable[[], None]] = deque()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do the work beside the loop."""
        future: asyncio.Future[T] = self._machine.loop.create_future()

        def run() -> None:
            try:
                result = work()
            except Exception as error:
                outcome: T | Exception = error
            else:
                outcome = result
            self._free += 1
            if self._waiting:
                self._begin(self._waiting.popleft())
            if future.cancelled():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        if self._free:
            self._begin(run)
        else:
            self._waiting.append(run)
        return future

    def _begin(self, run: Callable[[], None]) -> None:
        self._free -= 1
        takes_s = self._rng.expovariate(1.0) * self._machine.disk.work_mean_ns / 1e9
        self._machine.loop.call_later(takes_s, run)

    def close(self) -> None:
        """Do nothing: there are no threads."""
