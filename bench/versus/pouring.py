"""Loads of several connections at once, poured by a client that costs next to nothing."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from bench.processes import Measured, Sample
from bench.raw_client import Load, call, pour

#: Small answers are looked at when there are many of them.
_WAKE_BYTES = 32 * 1024


def pour_all(
    server: Measured,
    sockets: Sequence[socket.socket],
    requests: Sequence[bytes],
    loads: Sequence[Load],
) -> tuple[Sample, list[bytes]]:
    """Pour a load into each connection; return what that has cost, and the last answers.

    First, each sends one request, whose answer is as long as those to the load.
    """
    sizes = [len(call(sock, request)) for sock, request in zip(sockets, requests, strict=True)]
    last: list[bytes] = []

    def run() -> None:
        with ThreadPoolExecutor(len(sockets)) as threads:
            last.extend(threads.map(pour, sockets, loads, sizes, repeat(_WAKE_BYTES)))

    size, count = sum(load.size for load in loads), sum(load.requests for load in loads)
    return server.measure(size, count, run), last
