"""Simulated stream sockets: what a process sees of a connection.

Bytes are never lost, doubled or reordered within a connection. They take their time on the way, a
read or a write may take any part of what there is, and a connection can end at any byte: with the
peer's FIN, with a reset, or without a word, if the peer's machine has lost its power.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING, Any

from dohle.testing.simulation.files import SimulatedCrash

if TYPE_CHECKING:
    from dohle.testing.simulation.machine import Machine
    from dohle.testing.simulation.network import Network

Address = tuple[str, int]


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Direction:
    """What one end of a connection has sent to the other."""

    __slots__ = (
        "arrived",
        "buffer_bytes",
        "flying",
        "held_until_ns",
        "is_ended",
        "last_due_ns",
        "unread_bytes",
    )

    def __init__(self, buffer_bytes: int) -> None:
        #: How many bytes may be on their way or unread.
        self.buffer_bytes = buffer_bytes
        #: Bytes on their way; None is the end.
        self.flying: deque[bytes | None] = deque()
        self.arrived: deque[memoryview] = deque()
        #: Of what was sent, what was not read.
        self.unread_bytes = 0
        self.is_ended = False
        self.last_due_ns = 0
        #: Nothing arrives before.
        self.held_until_ns = 0


class SimulatedSocket:
    """One end of a connection, held by a process."""

    def __init__(
        self,
        network: Network,
        machine: Machine,
        number: int,
        address: Address,
        peer_address: Address,
        buffer_bytes: int,
    ) -> None:
        self.machine = machine
        self.number = number
        self.peer: SimulatedSocket
        self.outgoing = Direction(buffer_bytes)
        #: Nothing more can be sent or received, and the peer's kernel has said so.
        self.is_reset = False
        self.is_closed = False
        #: The machine was cut from its power: nobody answers for this end any more.
        self.has_vanished = False
        self._network = network
        self._loop = machine.loop
        self._address = address
        self._peer_address = peer_address
        self._loop.watch(number, self)

    # What the loop asks

    def is_readable(self) -> bool:
        """Tell whether there is something to read, be it the end."""
        incoming = self.peer.outgoing
        return bool(incoming.arrived) or incoming.is_ended or self.is_reset

    def is_writable(self) -> bool:
        """Tell whether there is room."""
        outgoing = self.outgoing
        return self.is_reset or outgoing.unread_bytes < outgoing.buffer_bytes

    def mark(self) -> None:
        """Tell the loop that something has happened."""
        self._loop.mark(self.number)

    # What the process does

    def fileno(self) -> int:
        """Return the number by which the loop knows it."""
        return -1 if self.is_closed else self.number

    def getsockname(self) -> Address:
        """Return the address of this end."""
        return self._address

    def getpeername(self) -> Address:
        """Return the address of the other end."""
        return self._peer_address

    def setblocking(self, flag: bool) -> None:
        """Refuse to block."""
        assert not flag, "nothing blocks in the simulator"

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Take any option: there is none that changes what may be relied on."""

    def recv(self, size: int) -> bytes:
        """Take what has arrived."""
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def recv_into(self, buffer: memoryview[Any]) -> int:
        """Take what has arrived, or a part of it."""
        self._check()
        if self.is_reset:
            raise _error(errno.ECONNRESET)
        incoming = self.peer.outgoing
        if not incoming.arrived:
            if incoming.is_ended:
                return 0
            raise _error(errno.EAGAIN)
        most = self._network.read_bytes(len(buffer))
        count = 0
        while incoming.arrived and count < most:
            piece = incoming.arrived[0]
            taken = min(len(piece), most - count)
            buffer[count : count + taken] = piece[:taken]
            count += taken
            if taken == len(piece):
                incoming.arrived.popleft()
            else:
                incoming.arrived[0] = piece[taken:]
        incoming.unread_bytes -= count
        self.peer.mark()
        return count

    def send(self, data: bytes | bytearray | memoryview[Any], flags: int = 0) -> int:
        """Send as much as there is room for, or a part of it."""
        self._check()
        if self.is_reset:
            raise _error(errno.ECONNRESET)
        outgoing = self.outgoing
        if outgoing.is_ended:
            raise _error(errno.EPIPE)
        room = outgoing.buffer_bytes - outgoing.unread_bytes
        if room <= 0:
            raise _error(errno.EAGAIN)
        sent = bytes(memoryview(data)[: self._network.write_bytes(min(room, len(data)))])
        outgoing.unread_bytes += len(sent)
        self._network.transmit(self, sent)
        return len(sent)

    def close(self) -> None:
        """Close; what arrives from now on, or has arrived and was not read, is answered by a reset.

        As TCP does: the peer may lose what it has not read yet.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.unwatch(self.number)
        self.machine.sockets.pop(self.number, None)
        if not self.is_reset and not self.has_vanished:
            self._network.finish(self, abruptly=bool(self.peer.outgoing.arrived))

    def _check(self) -> None:
        if self.machine.files.crashed:
            # The process has died in this very callback: nothing leaves it any more.
            raise SimulatedCrash
        if self.is_closed:
            raise _error(errno.EBADF)


class SimulatedServerSocket:
    """A port that connections come to."""

    def __init__(
        self, network: Network, machine: Machine, number: int, address: Address, backlog: int
    ) -> None:
        self.machine = machine
        self.number = number
        self.is_closed = False
        self._network = network
        self._loop = machine.loop
        self._address = address
        self._backlog = max(1, backlog)
        self._waiting: deque[SimulatedSocket] = deque()
        self._loop.watch(number, self)

    def is_readable(self) -> bool:
        """Tell whether a connection has come."""
        return bool(self._waiting)

    def is_writable(self) -> bool:
        """Never."""
        return False

    def come(self, sock: SimulatedSocket) -> bool:
        """Let a connection wait until it is accepted; False if too many do."""
        if self.is_closed or len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(sock)
        self._loop.mark(self.number)
        return True

    def fileno(self) -> int:
        """Return the number by which the loop knows it."""
        return -1 if self.is_closed else self.number

    def getsockname(self) -> Address:
        """Return the address it is bound to."""
        return self._address

    def accept(self) -> tuple[SimulatedSocket, Address]:
        """Take the next connection."""
        if self.machine.files.crashed:
            raise SimulatedCrash
        if not self._waiting:
            raise _error(errno.EAGAIN)
        sock = self._waiting.popleft()
        return sock, sock.getpeername()

    def close(self) -> None:
        """Close; connections that nobody has accepted are reset."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.unwatch(self.number)
        self._network.release(self._address[1], self)
        while self._waiting:
            self._waiting.popleft().close()
