"""Turns: dohle, Kafka, dohle, Kafka, ... each with new servers.

A part is a module with ``TITLE``, ``SETTINGS`` (configs of both) and ``turn``, which warms up what
is under test, one server or a cluster of them, loads it and returns its figures. Both are warmed
up with the same load, each until its rate has settled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tests.jvm.jvm import Jvm

from bench.comparison.figures import Comparison
from bench.comparison.warm_up import Limits, WarmUp, WarmUps, warm_up
from bench.processes import Served
from bench.versus.figures import DOHLE, KAFKA, Figure, compare

S = TypeVar("S", bound=Served)


class Skipped(Exception):
    """What a part measures cannot be done by one of both; says why."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured, and how long the warm-up takes."""

    quick: bool
    limits: Limits


@dataclass(slots=True)
class Turn(Generic[S]):
    """What a part measures with: servers that have just started, and a JVM for Java clients."""

    server: S
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
        self,
        load: Callable[[int], object],
        *,
        cycle: int = 1,
        paced: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """Load the server until its rate has settled, within the limits of the run or its own.

        Only what ``Served.measure`` has measured counts, not what the client did to get ready. A
        paced load takes the same time however fast the server is: it costs processor time.
        """
        server = self.server

        def cost() -> float:
            return server.cpu_s if paced else server.measured_s

        self.warmed_up = warm_up(load, cost, limits or self.pace.limits, cycle=cycle)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a turn."""

    figures: list[Figure]
    warm_up: WarmUp


class Part(Protocol[S]):
    """A module that measures something."""

    TITLE: str
    SETTINGS: Mapping[str, str]

    def turn(self, turn: Turn[S]) -> list[Figure]: ...


def take_turn(part: Part[S], turn: Turn[S]) -> Outcome:
    """Warm up and measure a server that has just started."""
    figures = part.turn(turn)
    if turn.warmed_up is None:
        raise RuntimeError(f"{part.TITLE} has not warmed up")
    return Outcome(figures, turn.warmed_up)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a part: the figures of both servers, and their warm-ups."""

    rows: list[Comparison]
    warm_ups: WarmUps


def play(
    title: str,
    take: Callable[[str], Outcome],
    limits: Limits,
    *,
    rounds: int,
    tell: Callable[[str], object],
) -> Played:
    """Let both take turns at a part; ``take`` gives the one of that name a turn."""
    found: dict[str, list[Outcome]] = {DOHLE: [], KAFKA: []}
    for number in range(rounds):
        for server, outcomes in found.items():
            begun = time.monotonic()
            try:
                outcomes.append(take(server))
            except Skipped as reason:
                raise Skipped(f"{title} is skipped: {server}: {reason}") from reason
            took_s, warmed_up = time.monotonic() - begun, outcomes[-1].warm_up
            tell(
                f"{title}: round {number + 1} of {rounds}, {server}, {took_s:.1f} s,"
                f" of which warm-up {warmed_up}"
            )
    rows = compare(title, {name: [one.figures for one in each] for name, each in found.items()})
    ours, theirs = (tuple(one.warm_up for one in found[name]) for name in (DOHLE, KAFKA))
    return Played(rows, WarmUps(limits, ours, theirs))
