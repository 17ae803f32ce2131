"""(j) Commands of the controller: topics one by one, and very many partitions with one request.

How long three controllers need to replace one is in ``bench/cluster/quorum.py``.
"""

from __future__ import annotations

import itertools

from bench.comparison.figures import Measure
from bench.quorum import create
from bench.raw_client import connect
from bench.versus.figures import Figure
from bench.versus.topics import create_topic, delete_topics
from bench.versus.turns import Turn

TITLE = "controller"
SETTINGS = {"num.partitions": "1"}

#: Both refuse a request that writes more than 10,000 records, and one of them is the topic's own.
PARTITIONS = 9_990
_COMMANDS = 1_000


def turn(turn: Turn) -> list[Figure]:
    """Create topics until the rate has settled, then count; then one of very many partitions."""
    server, numbers = turn.server, itertools.count()
    # A server that has just answered for the first time may not be registered yet.
    create_topic(server.address, "first")
    with connect(server.address) as sock:

        def create_some(count: int) -> None:
            for _ in range(count):
                create(sock, f"t-{next(numbers)}", 1)

        turn.warm_up(lambda _: server.measure(0, 20, lambda: create_some(20)))
        count = turn.size(_COMMANDS)
        one_by_one = server.measure(0, count, lambda: create_some(count))
    # Kafka answers before its broker has made a log, so both are waited for until they serve all.
    many = server.measure(0, 1, lambda: create_topic(server.address, "many", PARTITIONS))
    delete_topics(server.address, "many")
    case, large = "CreateTopics of 1 partition", f"{PARTITIONS:,} partitions, until served"
    return [
        Figure(case, Measure.RATE, count / one_by_one.seconds),
        Figure(case, Measure.CPU_PER_REQUEST, one_by_one.cpu_us_per_request),
        Figure(large, Measure.LATENCY, many.seconds * 1_000),
        Figure(large, Measure.CPU_PER_REQUEST, many.cpu_us_per_request),
    ]
