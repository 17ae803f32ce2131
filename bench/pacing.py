"""Sockets that send at once.

Where the system paces what it sends (BBR), packets go out by timers, whose interrupts are charged
to whatever runs just then: what sending costs then moves by half from one second to the next. Both
sides of the benchmark do without.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_UNPACED = b"reno"


def unpaced(sock: socket.socket) -> None:
    """Let a socket, and what it accepts if it listens, send as soon as the window allows."""
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)


def unpaced_listeners() -> None:
    """Do so for all sockets on which this process listens."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as sock:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                unpaced(sock)
