"""(f) Two hundred connections, with one request in flight on each."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from bench.comparison.figures import Measure
from bench.coordinators.client import connect_many
from bench.raw_client import build_batch, call, fetch_frame, ping_pong, produce_frame
from bench.versus.figures import Figure
from bench.versus.topics import create_topic
from bench.versus.turns import Turn
from dohle.core.ids import TopicName

TITLE = "200 connections"
SETTINGS = {"num.partitions": "1"}

CONNECTIONS = 200
_REQUESTS = 40_000
#: Few of those with 10 KB: a long warm-up would fill the page cache with them.
_REQUESTS_OF_WARM_UP = (4_000, 1_000, 4_000)


def turn(turn: Turn) -> list[Figure]:
    """Send small produce and fetch requests, and larger ones to produce."""
    server = turn.server
    topic = TopicName("shared")
    topic_id = create_topic(server.address, topic)
    small, large = build_batch(100, 1), build_batch(1_000, 10)
    cases = {
        "produce, 1 record of 100 B": (produce_frame(topic, small), 1),
        "produce, 10 KB": (produce_frame(topic, large), 2),
        "fetch, 1 record of 100 B": (fetch_frame(topic_id, 0, len(small)), 1),
    }
    found = []
    with ExitStack() as stack:
        sockets = connect_many(stack, server.address, CONNECTIONS)
        sizes = {case: len(call(sockets[0], request)) for case, (request, _) in cases.items()}

        def load(case: str, count: int) -> None:
            ping_pong(sockets, cases[case][0], sizes[case], count)

        def warm_up(_: int) -> None:
            for case, count in zip(cases, _REQUESTS_OF_WARM_UP, strict=True):
                server.measure(0, count, partial(load, case, count))

        turn.warm_up(warm_up)
        for case, (_, share) in cases.items():
            count = turn.size(_REQUESTS) // share
            sample = server.measure(0, count, partial(load, case, count))
            found += [
                Figure(case, Measure.RATE, count / sample.seconds),
                Figure(case, Measure.CPU_PER_REQUEST, sample.cpu_us_per_request),
            ]
    return found
