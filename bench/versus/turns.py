"""Turns: dohle, Kafka, dohle, Kafka, ... each with a new server.

A part is a module of this package with ``TITLE``, ``SETTINGS`` (configs of both servers) and
``turn``, which warms the server up, loads it and returns its figures. Both servers are warmed up
with the same load, each until its rate has settled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from tests.jvm.jvm import Jvm

from bench.comparison.figures import Comparison
from bench.comparison.warm_up import Limits, WarmUp, WarmUps, warm_up
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
    "i": "cleaner",
    "j": "quorum",
}

#: The options of kafka-producer-perf-test and its like; they undo those for short-lived tools.
_CLIENT_OPTIONS = (
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    *PERFORMANCE_OPTIONS,
    "-Xmx512M",
)


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured, and how long the warm-up takes."""

    quick: bool
    limits: Limits


@dataclass(slots=True)
class Turn:
    """What a part measures with: a server that has just started, and a JVM for Java clients."""

    server: Server
    pace: Pace
    jvm: Jvm | None = None
    #: How the warm-up went; None before it.
    warmed_up: WarmUp | None = None

    @property
    def clients(self) -> Jvm:
        """Return the JVM that runs Java clients."""
        if self.jvm is None:
            raise RuntimeError("there is no JVM in this run")
        return self.jvm

    def size(self, number: int) -> int:
        """Return how much of something is done: a quarter of it in a quick run."""
        return number // 4 if self.pace.quick else number

    def warm_up(
        self, load: Callable[[int], object], *, cycle: int = 1, paced: bool = False
    ) -> None:
        """Load the server until its rate has settled.

        Only what ``Server.measure`` has measured counts, not what the client did to get ready. A
        paced load takes the same time however fast the server is: it costs processor time.
        """
        server = self.server

        def cost() -> float:
            return server.cpu_s if paced else server.measured_s

        self.warmed_up = warm_up(load, cost, self.pace.limits, cycle=cycle)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a turn."""

    figures: list[Figure]
    warm_up: WarmUp


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
    """The jars, and the JVMs that outlive the servers."""

    classpath: str
    formatter: Jvm
    clients: Jvm

    def server(self, name: str, part: Part) -> AbstractContextManager[Server]:
        """Start a server for a part."""
        if name == DOHLE:
            return dohle(part.SETTINGS)
        return kafka(self.classpath, self.formatter, part.SETTINGS)

    def turn(self, name: str, part: Part, pace: Pace) -> Outcome:
        """Give one server a turn."""
        with self.server(name, part) as server:
            return take_turn(part, Turn(server, pace, self.clients))


def take_turn(part: Part, turn: Turn) -> Outcome:
    """Warm up and measure a server that has just started."""
    figures = part.turn(turn)
    if turn.warmed_up is None:
        raise RuntimeError(f"{part.TITLE} has not warmed up")
    return Outcome(figures, turn.warmed_up)


@contextmanager
def stand(classpath: str) -> Iterator[Stand]:
    """Start what the turns need."""
    with (
        folder() as path,
        Jvm(classpath, Path(path)) as formatter,
        Jvm(classpath, Path(path), _CLIENT_OPTIONS) as clients,
    ):
        yield Stand(classpath, formatter, clients)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a part: the figures of both servers, and their warm-ups."""

    rows: list[Comparison]
    warm_ups: WarmUps


def play(
    bench: Stand, name: str, pace: Pace, *, rounds: int, tell: Callable[[str], object]
) -> Played:
    """Let the servers take turns at a part."""
    part = find_part(name)
    found: dict[str, list[Outcome]] = {DOHLE: [], KAFKA: []}
    for number in range(rounds):
        for server, outcomes in found.items():
            begun = time.monotonic()
            outcomes.append(bench.turn(server, part, pace))
            took_s, warmed_up = time.monotonic() - begun, outcomes[-1].warm_up
            tell(
                f"{part.TITLE}: round {number + 1} of {rounds}, {server}, {took_s:.1f} s,"
                f" of which warm-up {warmed_up}"
            )
    rows = compare(
        part.TITLE, {name: [one.figures for one in each] for name, each in found.items()}
    )
    ours, theirs = (tuple(one.warm_up for one in found[name]) for name in (DOHLE, KAFKA))
    return Played(rows, WarmUps(pace.limits, ours, theirs))
