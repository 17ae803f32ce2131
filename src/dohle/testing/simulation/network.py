"""The simulated network: who listens where, how long bytes take, and what goes wrong with them.

- Each direction of a pair of machines has its own mean delay; a single delay is drawn from an
  exponential distribution. Order holds within a connection and nowhere else.
- A cut link (:meth:`Network.cut`) delivers nothing until it is mended; then what was on its way
  arrives, as TCP's repetitions would have it. It can be cut in one direction only.
- A connection can be held (:meth:`Network.hold`): what was sent on it comes late, after what is
  sent on a newer one.
- A killed process ends its connections: by FIN or by reset, as chance has it. A machine without
  power ends nothing: whoever sends to it hears of it once it is back, by a reset.
- Where nobody listens, connections are refused; where there is no power, nothing happens at all.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from dohle.testing.simulation.sockets import Address, SimulatedServerSocket, SimulatedSocket
from dohle.testing.simulation.transport import SimulatedTransport

if TYPE_CHECKING:
    from dohle.testing.simulation.machine import Machine
    from dohle.testing.simulation.world import World

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FIRST_PORT = 20_000
#: A machine without power is asked again and again, as TCP does, for so long.
_SYN_RETRY_NS = 1_000_000_000


@dataclass(slots=True)
class NetworkSettings:
    """How the network is; drawn once for each seed."""

    delay_mean_ns: int = 200_000
    #: How much a socket's buffers hold.
    buffer_bytes: int = 256 * 1024
    #: How often a read or a write is cut short.
    short_share: float = 0.0


class Network:
    """All machines' connections."""

    def __init__(self, world: World, rng: Random, settings: NetworkSettings) -> None:
        self.settings = settings
        self._world = world
        self._rng = rng
        self._listening: dict[tuple[str, int], SimulatedServerSocket] = {}
        self._cut_until_ns: dict[tuple[str, str], int] = {}
        self._numbers = 100
        self._ports = _FIRST_PORT

    # What processes do

    def listen(self, machine: Machine, port: int, backlog: int, host: str) -> SimulatedServerSocket:
        """Bind a port of a machine."""
        if port == 0:
            self._ports += 1
            port = self._ports
        if (machine.name, port) in self._listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        address = (host if host in _LOOPBACK else machine.name, port)
        self._numbers += 1
        listening = SimulatedServerSocket(self, machine, self._numbers, address, backlog)
        self._listening[machine.name, port] = listening
        machine.listening.append(listening)
        return listening

    def release(self, port: int, listening: SimulatedServerSocket) -> None:
        """Free a port."""
        key = (listening.machine.name, port)
        if self._listening.get(key) is listening:
            del self._listening[key]

    async def connect(
        self,
        machine: Machine,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """Connect a process to an address, and return when the other side knows of it."""
        loop = machine.loop
        done: asyncio.Future[SimulatedSocket] = loop.create_future()
        target = machine if host in _LOOPBACK else self._world.machine_named(host)
        self._begin(machine, target, port, done)
        sock = await done
        protocol = protocol_factory()
        return SimulatedTransport(loop, sock, protocol), protocol

    def _begin(
        self,
        machine: Machine,
        target: Machine,
        port: int,
        done: asyncio.Future[SimulatedSocket],
    ) -> None:
        life = machine.life

        def arrive() -> None:
            if done.done() or machine.life != life:
                return
            if not target.has_power or self._is_cut(machine, target):
                self._world.at(self._world.time.now_ns + _SYN_RETRY_NS, arrive)
                return
            ends = self._make(machine, target, port)
            self._world.at(self._after(self._delay_ns(target, machine)), lambda: answer(ends))

        def answer(sock: SimulatedSocket | None) -> None:
            if machine.life != life:
                return
            if done.done():
                if sock is not None:
                    sock.close()
            elif sock is None:
                number = errno.ECONNREFUSED
                done.set_exception(OSError(number, os.strerror(number)))
            else:
                done.set_result(sock)

        self._world.at(self._after(self._delay_ns(machine, target)), arrive)

    def _make(self, machine: Machine, target: Machine, port: int) -> SimulatedSocket | None:
        listening = self._listening.get((target.name, port))
        if listening is None:
            return None
        self._ports += 1
        is_local = machine is target
        here = (_LOOPBACK[0] if is_local else machine.address, self._ports)
        there = (_LOOPBACK[0] if is_local else target.address, port)
        ours, theirs = self._end(machine, here, there), self._end(target, there, here)
        ours.peer, theirs.peer = theirs, ours
        if not listening.come(theirs):
            ours.is_reset = theirs.is_reset = True
            ours.close()
            theirs.close()
            return None
        self._world.note("connect", machine.name, f"to {target.name}:{port} as {self._ports}")
        return ours

    def _end(self, machine: Machine, address: Address, peer: Address) -> SimulatedSocket:
        self._numbers += 1
        size = self.settings.buffer_bytes
        sock = SimulatedSocket(self, machine, self._numbers, address, peer, size)
        machine.sockets[sock.number] = sock
        return sock

    def read_bytes(self, most: int) -> int:
        """Return how much a read takes at most."""
        return self._some(most)

    def write_bytes(self, most: int) -> int:
        """Return how much a write takes at most."""
        return self._some(most)

    def _some(self, most: int) -> int:
        share = self.settings.short_share
        if most > 1 and share and self._rng.random() < share:
            return self._rng.randint(1, most)
        return most

    # Bytes on their way

    def transmit(self, sock: SimulatedSocket, data: bytes) -> None:
        """Send bytes that the other end will find."""
        self._world.sent(sock, data)
        self._fly(sock, data)

    def finish(self, sock: SimulatedSocket, *, abruptly: bool) -> None:
        """Tell the other end that this one sends no more."""
        if abruptly:
            self._reset_later(sock.peer)
        else:
            self._fly(sock, None)

    def _fly(self, sock: SimulatedSocket, data: bytes | None) -> None:
        outgoing = sock.outgoing
        outgoing.flying.append(data)
        due_ns = self._after(self._delay_ns(sock.machine, sock.peer.machine))
        outgoing.last_due_ns = due_ns = max(due_ns, outgoing.last_due_ns)
        self._world.at(due_ns, lambda: self._land(sock))

    def _land(self, sock: SimulatedSocket) -> None:
        """Let the oldest of what was sent arrive."""
        outgoing, peer = sock.outgoing, sock.peer
        if not outgoing.flying:
            return
        wait_ns = self._cut_until_ns.get((sock.machine.name, peer.machine.name), 0)
        wait_ns = max(wait_ns, outgoing.held_until_ns)
        if wait_ns > self._world.time.now_ns:
            self._world.at(wait_ns, lambda: self._land(sock))
            return
        data = outgoing.flying.popleft()
        if peer.has_vanished:
            if peer.machine.has_power:
                self._reset_later(sock)
            else:
                # It is sent again and again, until somebody can say that it is not known.
                peer.machine.unanswered.append(sock)
        elif peer.is_closed:
            if data is not None:
                self._reset_later(sock)
        elif data is None:
            outgoing.is_ended = True
            peer.mark()
        else:
            outgoing.arrived.append(memoryview(data))
            peer.mark()

    def _reset_later(self, sock: SimulatedSocket) -> None:
        """Let one end learn, a little later, that the other is gone."""
        self._world.at(
            self._after(self._delay_ns(sock.peer.machine, sock.machine)), lambda: _reset(sock)
        )

    def answer_for(self, machine: Machine) -> None:
        """Reset what was sent to a machine while it had no power."""
        unanswered, machine.unanswered = machine.unanswered, []
        for sock in unanswered:
            self._reset_later(sock)

    # What goes wrong

    def reset(self, sock: SimulatedSocket) -> None:
        """Break a connection: both ends learn of it at once, and what was on its way is lost."""
        self._world.note("reset", sock.machine.name, f"connection with {sock.peer.machine.name}")
        for end in (sock, sock.peer):
            end.outgoing.flying.clear()
            _reset(end)

    def process_died(self, machine: Machine) -> None:
        """Have a kernel close what its process has left open."""
        for listening in machine.listening:
            listening.close()
        machine.listening = []
        for sock in list(machine.sockets.values()):
            if self._rng.random() < 0.5:
                sock.close()
            else:
                sock.is_closed = True
                self.finish(sock, abruptly=True)
        machine.sockets = {}

    def power_lost(self, machine: Machine) -> None:
        """Let all ends at a machine vanish without a word."""
        for listening in machine.listening:
            self.release(listening.getsockname()[1], listening)
            listening.is_closed = True
        machine.listening = []
        for sock in machine.sockets.values():
            sock.has_vanished = sock.is_closed = True
            sock.outgoing.flying.clear()
        machine.sockets = {}

    def cut(self, source: str, target: str, until_ns: int) -> None:
        """Deliver nothing from one machine to another until then."""
        self._cut_until_ns[source, target] = until_ns

    def hold(self, sock: SimulatedSocket, until_ns: int) -> None:
        """Deliver nothing of what one end of a connection sends until then.

        Other connections go on: whoever takes this one for dead and asks again on another is
        answered there, and what was sent here arrives later all the same.
        """
        self._world.note("hold", sock.machine.name, f"what goes to {sock.peer.machine.name}")
        sock.outgoing.held_until_ns = until_ns

    def mend(self) -> None:
        """Mend all links."""
        self._cut_until_ns.clear()

    def _is_cut(self, machine: Machine, target: Machine) -> bool:
        ways = ((machine.name, target.name), (target.name, machine.name))
        return any(self._cut_until_ns.get(way, 0) > self._world.time.now_ns for way in ways)

    def _delay_ns(self, source: Machine, target: Machine) -> int:
        if source is target:
            return 20_000
        return 20_000 + int(self._rng.expovariate(1.0) * self.settings.delay_mean_ns)

    def _after(self, delay_ns: int) -> int:
        return self._world.time.now_ns + delay_ns


def _reset(sock: SimulatedSocket) -> None:
    if not sock.is_closed:
        sock.is_reset = True
        sock.peer.outgoing.arrived.clear()
        sock.mark()
