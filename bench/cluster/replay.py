"""(b) Requests that were built before, on raw sockets, to partitions that one node leads.

So nearly all of the machine is the nodes', and what a follower costs can be told from what a leader
does: each follower copies what the leader takes in.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import mean

from bench.cluster.nodes import NODES, Cluster
from bench.cluster.topics import create_topic
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.coordinators.client import connect_many
from bench.versus.figures import Figure
from bench.versus.replay import CONNECTIONS, LOADS, Replay, figures
from bench.versus.topics import Place, delete_topics

TITLE = "replay"
SETTINGS = {"num.partitions": "1"}

LEADER, *FOLLOWERS = NODES


def turn(turn: Turn) -> list[Figure]:
    """Produce and fetch with batches of each size."""
    turn.warm_up(lambda number: warm_up(turn, number))
    found = []
    for number, batches in enumerate(LOADS):
        place = _create(turn.server, f"replay-{number}")
        total = turn.size(batches.total)
        load = Replay(turn.server, place, batches, total)
        with ExitStack() as stack:
            sockets = connect_many(stack, place.address, CONNECTIONS)
            before = turn.server.cpu_s_of_nodes
            produced = load.produce(sockets)
            after = turn.server.cpu_s_of_nodes
            fetched = load.fetch(sockets)
        spent = {node: after[node] - before[node] for node in NODES}
        found += [
            *figures(f"produce, {batches.name}", batches, produced),
            Figure(f"a follower, {batches.name}", Measure.FOLLOWER, follower_share(spent)),
            *figures(f"fetch, {batches.name}", batches, fetched),
        ]
    return found


def follower_share(spent: dict[int, float]) -> float:
    """Return what a follower has cost, beside the leader."""
    return mean(spent[node] for node in FOLLOWERS) / spent[LEADER]


def warm_up(turn: Turn, number: int) -> None:
    """Do an eighth of everything, with topics of this number."""
    for which, batches in enumerate(LOADS):
        place = _create(turn.server, f"warm-{number}-{which}")
        Replay(turn.server, place, batches, turn.size(batches.total) // 8).run()
        delete_topics(place.address, place.topic)


def _create(cluster: Cluster, topic: str) -> Place:
    return create_topic(cluster, topic, [LEADER] * CONNECTIONS)
