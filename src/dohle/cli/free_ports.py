"""Ports for servers that are started again on the port that they had.

A port that the system chose (``bind`` to 0) is one of those that it gives to outgoing connections,
too. While the server is down, such a connection, or another test's server, may be given that very
port, and the server cannot come back. So these are from below that range, and each stays reserved
for the process that asked: it holds a socket that is bound and does not listen. Linux lets a server
bind to the same port beside it, because both say SO_REUSEADDR; whoever looks for a free port does
not say so, and is refused.
"""

from __future__ import annotations

import atexit
import random
import socket
from itertools import islice

#: Below those that Linux hands out by itself.
_PORTS = range(20_000, 32_000)

# Not the shared generator: property tests seed that one, in every worker the same.
_rng = random.SystemRandom()
_reservations: list[socket.socket] = []


def free_ports(number: int) -> list[int]:
    """Return ports that are free and that nobody else will be given."""
    return list(islice(filter(_is_reserved, _rng.sample(_PORTS, len(_PORTS))), number))


@atexit.register
def _let_go() -> None:
    for reservation in _reservations:
        reservation.close()


def _is_reserved(port: int) -> bool:
    """Try to reserve it."""
    reservation = socket.socket()
    try:
        reservation.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        return False
    # Only now: with it, ``bind`` would succeed where somebody else has a reservation.
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reservations.append(reservation)
    return True
