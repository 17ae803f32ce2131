"""(c) Latency at a fixed, moderate rate, until all replicas have a record and it has been read.

As with one server (``bench.versus.latency``), with a partition of each node and one more.
"""

from __future__ import annotations

from bench.cluster.nodes import NODES
from bench.cluster.topics import create_topic
from bench.cluster.turns import Turn
from bench.versus.figures import Figure
from bench.versus.latency import CONNECTIONS, WARM_UP_BEAT, Beat, Loop
from bench.versus.topics import Place, delete_topics

TITLE = "latency"
SETTINGS = {"num.partitions": "1"}

#: A third of what a single server is asked, since three share the machine with the client.
_BEATS = (Beat(1, 300, 10.0), Beat(16, 150, 10.0))


def turn(turn: Turn) -> list[Figure]:
    """Measure at each rate."""
    turn.warm_up(lambda number: _warm_up(turn, number), paced=True)
    found = []
    for number, beat in enumerate(_BEATS):
        loop = Loop(_places(turn, f"paced-{number}"), beat, turn.size(beat.count))
        loop.run()
        found += loop.figures()
    return found


def _warm_up(turn: Turn, number: int) -> None:
    places = _places(turn, f"warm-{number}")
    beat = Beat(WARM_UP_BEAT.records, WARM_UP_BEAT.rate // 4, WARM_UP_BEAT.seconds)
    Loop(places, beat, beat.count).run()
    delete_topics(places[0].address, *(one.topic for one in places))


def _places(turn: Turn, topic: str) -> list[Place]:
    return [
        create_topic(turn.server, f"{topic}-{n}", [NODES[n % len(NODES)]])
        for n in range(CONNECTIONS)
    ]
