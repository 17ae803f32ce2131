"""A world of simulated machines, run from one seed.

At each turn the world picks, by its seed, one of the processes that have something to do, and runs
one callback of it. A callback takes a little time; when nobody has anything to do, time goes on to
the next timer or the next arrival. Everything that happens follows from the seed: a run is repeated
by giving the same seed again.

:attr:`World.digest` covers every byte that was sent or written, with who did it and when. Two runs
of one seed that differ anywhere differ there.
"""

from __future__ import annotations

import hashlib
import heapq
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash
from dohle.testing.simulation.loop import VirtualTime
from dohle.testing.simulation.machine import Machine
from dohle.testing.simulation.network import Network, NetworkSettings
from dohle.testing.simulation.sockets import SimulatedSocket

SECOND_NS = 1_000_000_000
_STEPS_MAX = 20_000_000


class Stuck(Exception):
    """What was waited for has not happened in time."""


class World:
    """Machines, their network and their time."""

    def __init__(
        self,
        seed: int,
        *,
        network: NetworkSettings | None = None,
        callback_ns: int = 10_000,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.time = VirtualTime()
        self.machines: dict[str, Machine] = {}
        self.network = Network(self, self.stream("network"), network or NetworkSettings())
        #: Called when a process has ended by itself, or has died in a crash of its disk.
        self.on_exit: Callable[[Machine], None] = lambda machine: None
        #: Called after each callback, with the machine whose it was: for checks at every event.
        self.on_step: Callable[[Machine], None] | None = None
        #: What nobody has caught, with the machine where it was raised.
        self.errors: list[str] = []
        self.callbacks = 0
        self._callback_ns = callback_ns
        self._trace = trace
        self._rng = self.stream("turns")
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def stream(self, purpose: str) -> Random:
        """Return chance for one purpose, which does not depend on what others draw."""
        text = f"{self.seed}/{purpose}".encode()
        return Random(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()))

    def machine(self, name: str) -> Machine:
        """Add a machine."""
        made = Machine(self, name, f"10.0.0.{len(self.machines) + 1}")
        self.machines[name] = made
        return made

    def machine_named(self, host: str) -> Machine:
        """Return the machine with this name or address."""
        for machine in self.machines.values():
            if host in (machine.name, machine.address):
                return machine
        raise OSError(f"there is no machine {host}")

    # Time

    def at(self, due_ns: int, what: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._event_count += 1
        heapq.heappush(self._events, (due_ns, self._event_count, what))

    def after(self, delay_ns: int, what: Callable[[], None]) -> None:
        """Let something happen after a while."""
        self.at(self.time.now_ns + delay_ns, what)

    @property
    def now_s(self) -> float:
        """How long the world has lasted."""
        return self.time.now_ns / SECOND_NS

    def run_until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Go on until something is true; :class:`Stuck` if that takes longer."""
        limit_ns = self.time.now_ns + round(within_s * SECOND_NS)
        for _ in range(_STEPS_MAX):
            if condition():
                return
            if self.time.now_ns > limit_ns or not self.step():
                break
        if not condition():
            raise Stuck(f"no end after {within_s:g} s of virtual time")

    def run_for(self, seconds: float) -> None:
        """Go on for a while."""
        end_ns = self.time.now_ns + round(seconds * SECOND_NS)
        self.at(end_ns, lambda: None)
        self.run_until(lambda: self.time.now_ns >= end_ns, seconds + 1)

    def step(self) -> bool:
        """Run one callback, or let time go on; False if nothing will ever happen again."""
        time, events = self.time, self._events
        while events and events[0][0] <= time.now_ns:
            heapq.heappop(events)[2]()
        able = [
            machine
            for machine in self.machines.values()
            if machine.is_running
            and machine.paused_until_ns <= time.now_ns
            and machine.loop.has_work()
        ]
        if not able:
            return self._pass_time()
        machine = able[0] if len(able) == 1 else able[int(self._rng.random() * len(able))]
        self.callbacks += 1
        time.now_ns += self._callback_ns
        try:
            machine.loop.step()
        except SimulatedCrash:
            assert machine.files.crashed
        # A crash within a task has become that task's outcome: it is seen here.
        if machine.files.crashed:
            self._crashed(machine)
        elif machine.main.done():
            self._ended(machine)
        elif self.on_step is not None:
            self.on_step(machine)
        return True

    def _pass_time(self) -> bool:
        due = [self._events[0][0]] if self._events else []
        for machine in self.machines.values():
            if machine.is_running:
                if machine.paused_until_ns > self.time.now_ns:
                    due.append(machine.paused_until_ns)
                elif (next_ns := machine.loop.next_due_ns()) is not None:
                    due.append(next_ns)
        if not due:
            return False
        self.time.now_ns = max(self.time.now_ns, min(due))
        return True

    def _crashed(self, machine: Machine) -> None:
        self.note("crash", machine.name, "in a disk operation")
        machine.kill()
        self.on_exit(machine)

    def _ended(self, machine: Machine) -> None:
        main = machine.main
        if not main.cancelled() and (error := main.exception()) is not None:
            self.error(machine, {"message": "the program failed", "exception": error})
        machine.ended()
        self.on_exit(machine)

    def close(self) -> None:
        """End all processes."""
        for machine in self.machines.values():
            machine.kill()

    # What is told

    def sent(self, sock: SimulatedSocket, data: bytes) -> None:
        """Take note of bytes that leave a socket."""
        self._digest.update(b"%d %d " % (self.time.now_ns, sock.number))
        self._digest.update(data)
        if self._trace is not None:
            to = sock.peer.machine.name
            self.note("send", sock.machine.name, f"{len(data)} bytes ({_crc(data)}) to {to}")

    def disk_operation(
        self, machine: Machine, operation: Operation, path: str, data: bytes
    ) -> None:
        """Take note of a change of a disk, and of the time it takes."""
        self.time.now_ns += machine.disk.operation_ns
        self._digest.update(f"{self.time.now_ns} {machine.name} {operation.value} {path} ".encode())
        self._digest.update(data)
        if self._trace is not None:
            what = f" {len(data)} bytes ({_crc(data)})" if data else ""
            self.note(operation.value, machine.name, path + what)

    def note(self, kind: str, name: str, what: str) -> None:
        """Tell of an event, if anybody wants to know."""
        if self._trace is not None:
            self._trace(f"{self.now_s:12.6f}  {name:<10} {kind:<10} {what}")

    def error(self, machine: Machine, context: dict[str, Any]) -> None:
        """Take note of what nobody has caught."""
        error = context.get("exception")
        text = f"{self.now_s:.6f} {machine.name}: {context.get('message')}: {error!r}"
        self.note("error", machine.name, text)
        if not isinstance(error, SimulatedCrash):
            self.errors.append(text)

    @property
    def digest(self) -> str:
        """What has been sent and written so far, in short."""
        return self._digest.hexdigest()


def _crc(data: bytes) -> str:
    """Return what tells bytes from others of the same length, for whoever compares two traces."""
    return f"{zlib.crc32(data):08x}"
