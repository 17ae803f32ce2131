"""(f) How fast a follower that was away copies what it has missed.

It is stopped in good order, others write, and it is started again. The time runs from its first
write until its files have everything, so how long it takes to start does not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.cluster import replay
from bench.cluster.nodes import NODES
from bench.cluster.topics import await_in_sync, create_topic
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.coordinators.client import connect_many
from bench.processes import Sample
from bench.raw_client import build_batch, produce_frame, repeat
from bench.versus.figures import Figure
from bench.versus.pouring import pour_all
from bench.versus.replay import CONNECTIONS, LOADS
from bench.versus.topics import Place

TITLE = "catch-up"
SETTINGS = {"num.partitions": "1"}

LEADER, _, AWAY = NODES
_BYTES = 800_000_000
_LOOK_AGAIN_S = 0.005
_TIMEOUT_S = 120.0


class Look(NamedTuple):
    """What a follower had at a moment, and what it had cost."""

    at_s: float
    size: int
    cpu_s: float


def turn(turn: Turn) -> list[Figure]:
    """Let a follower miss large batches, and small ones."""
    turn.warm_up(lambda number: replay.warm_up(turn, number))
    found = []
    for batches in LOADS[:2]:
        name = batches.name.replace(" ", "-")
        place = create_topic(turn.server, f"missed-{name}", [LEADER] * CONNECTIONS)
        turn.server.nodes[AWAY].terminate()
        turn.server.nodes[AWAY].await_end()
        batch = build_batch(batches.record_size, batches.records)
        _write(turn, place, batch)
        looks = _copy(turn, place)
        await_in_sync(turn.server, place.topic, CONNECTIONS)
        sample = spent(looks)
        case = f"a follower that was away, {batches.name}"
        found += [
            Figure(case, Measure.THROUGHPUT, sample.mb_per_s),
            Figure(case, Measure.CPU_PER_GB, sample.cpu_s_per_gb),
        ]
    return found


def _write(turn: Turn, place: Place, batch: bytes) -> None:
    each = max(1, turn.size(_BYTES) // len(batch) // CONNECTIONS)
    requests = [produce_frame(place.topic, batch, n) for n in range(CONNECTIONS)]
    loads = [repeat(request, each) for request in requests]
    with ExitStack() as stack:
        sockets = connect_many(stack, place.address, CONNECTIONS)
        pour_all(turn.server.nodes[LEADER], sockets, requests, loads)


def _copy(turn: Turn, place: Place) -> list[Look]:
    """Start the follower, and look until it has what the leader has."""
    leader, away = (turn.server.nodes[number] for number in (LEADER, AWAY))
    goal = _size(leader.data, place)
    away.spawn()
    looks: list[Look] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while not looks or looks[-1].size < goal:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{place.topic} has not been copied")
        looks.append(Look(time.perf_counter(), _size(away.data, place), away.cpu_s))
        time.sleep(_LOOK_AGAIN_S)
    return looks


def _size(data: Path, place: Place) -> int:
    return sum(file.stat().st_size for file in data.glob(f"{place.topic}-[0-9]/*.log"))


def spent(looks: Sequence[Look]) -> Sample:
    """Tell what copying has cost: from the last look before anything was written to the end."""
    first = max(number for number, look in enumerate(looks) if look.size == looks[0].size)
    begin, end = looks[first], looks[-1]
    seconds, cpu_s = end.at_s - begin.at_s, end.cpu_s - begin.cpu_s
    return Sample(seconds, cpu_s, end.size - begin.size, 1)
