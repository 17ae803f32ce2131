"""Turns: dohle, Kafka, dohle, Kafka, ... each with a new server.

A part is a module of this package with ``TITLE``, ``SETTINGS`` (configs of both servers) and
``turn``, which warms the server up, loads it and returns its figures. What it warms up with, it
does to both servers alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Protocol, cast

from tests.jvm.jvm import Jvm

from bench.comparison.figures import Comparison
from bench.processes import folder
from bench.versus.figures import DOHLE, KAFKA, Figure, compare
from bench.versus.servers import PERFORMANCE_OPTIONS, Server, dohle, kafka

#: The parts, by the letters of what they answer.
PARTS = {
    "a": "librdkafka",
    "b": "java_tools",
    "c": "replay",
    "d": "latency",
    "e": "partitions",
    "f": "connections",
    "g": "coordinators",
    "h": "footprint",
}

#: A load runs at least so long before it counts, for Java's compilers to be done with what the load
#: needs. (With the quick one they are not: such figures are too good for dohle.)
WARM_UP_S, WARM_UP_QUICK_S = 6.0, 2.0

#: As kafka-producer-perf-test and its like have them; undoes what suits tools that only start.
_CLIENT_OPTIONS = (
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    *PERFORMANCE_OPTIONS,
    "-Xmx512M",
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is done, and for how long before it counts."""

    quick: bool
    warm_up_s: float


@dataclass(frozen=True, slots=True)
class Turn:
    """What a part measures with: a server that has just started, and a machine for Java clients."""

    server: Server
    clients: Jvm
    pace: Pace

    def size(self, number: int) -> int:
        """Return how much of something is done: a part of it if it has to be quick."""
        return number // 4 if self.pace.quick else number

    def warm_up(self, load: Callable[[int], object]) -> None:
        """Load the server, with a number for each time, until it has had its time."""
        until = time.monotonic() + self.pace.warm_up_s
        for number in count():
            load(number)
            if time.monotonic() > until:
                return


class Part(Protocol):
    """A module of this package that measures something."""

    TITLE: str
    SETTINGS: Mapping[str, str]

    def turn(self, turn: Turn) -> list[Figure]: ...


def find_part(name: str) -> Part:
    """Return the part of this name."""
    return cast("Part", import_module(f"bench.versus.{name}"))


@dataclass(frozen=True, slots=True)
class Stand:
    """The jars, and the machines that outlive the servers."""

    classpath: str
    formatter: Jvm
    clients: Jvm

    def server(self, name: str, part: Part) -> AbstractContextManager[Server]:
        """Start a server for a part."""
        if name == DOHLE:
            return dohle(part.SETTINGS)
        return kafka(self.classpath, self.formatter, part.SETTINGS)

    def turn(self, name: str, part: Part, pace: Pace) -> list[Figure]:
        """Let one server have a turn."""
        with self.server(name, part) as server:
            return part.turn(Turn(server, self.clients, pace))


@contextmanager
def stand(classpath: str) -> Iterator[Stand]:
    """Start what the turns need."""
    with (
        folder() as path,
        Jvm(classpath, Path(path)) as formatter,
        Jvm(classpath, Path(path), _CLIENT_OPTIONS) as clients,
    ):
        yield Stand(classpath, formatter, clients)


def play(
    bench: Stand, name: str, pace: Pace, *, rounds: int, tell: Callable[[str], object]
) -> list[Comparison]:
    """Let the servers take turns at a part."""
    part = find_part(name)
    found: dict[str, list[Sequence[Figure]]] = {DOHLE: [], KAFKA: []}
    for number in range(rounds):
        for server, figures in found.items():
            begun = time.monotonic()
            figures.append(bench.turn(server, part, pace))
            took = time.monotonic() - begun
            tell(f"{part.TITLE}: round {number + 1} of {rounds}, {server}, {took:.1f} s")
    return compare(part.TITLE, found)
