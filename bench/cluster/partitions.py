"""(d) A thousand partitions with three replicas each: small batches to all of them, and rest.

Requests go to one partition, as librdkafka sends them, or to a hundred, as the Java producer does,
on two connections to each leader.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.cluster.nodes import NODES
from bench.cluster.topics import create_topic
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.raw_client import build_batch, call, connect, produce_frame
from bench.versus.figures import Figure
from bench.versus.pouring import produce_cycles, produce_many_frame
from dohle.core.ids import TopicName

TITLE = "1,000 partitions × 3"
SETTINGS = {"num.partitions": "1"}

PARTITIONS = 1_000
_OF_REQUEST = 100
_TOPIC = TopicName("many")
_RECORDS, _RECORD_BYTES = 10, 100
_CONNECTIONS_OF_LEADER = 2
_SINGLE, _MULTIPLE = 12_000, 480
_IDLE_S = 8


def turn(turn: Turn) -> list[Figure]:
    """Produce both ways, and look at a cluster at rest."""
    cluster = turn.server
    begun = time.perf_counter()
    create_topic(cluster, _TOPIC, leaders())
    created_s = time.perf_counter() - begun
    batch = build_batch(_RECORD_BYTES, _RECORDS)
    with ExitStack() as stack:
        sockets, to_one, to_many = [], [], []
        for leader in NODES:
            own = [index for index, one in enumerate(leaders()) if one == leader]
            singles = [produce_frame(_TOPIC, batch, index) for index in own]
            shares = [own[first : first + _OF_REQUEST] for first in range(0, len(own), _OF_REQUEST)]
            # Only whole ones, so that all answers are of the same size.
            multiples = [
                produce_many_frame(_TOPIC, batch, share)
                for share in shares
                if len(share) == _OF_REQUEST
            ]
            for number in range(_CONNECTIONS_OF_LEADER):
                sockets.append(stack.enter_context(connect(cluster.nodes[leader].address)))
                to_one.append(_from(singles, number))
                to_many.append(_from(multiples, number))
            # Every partition is written to once before anything counts.
            call(sockets[-1], produce_many_frame(_TOPIC, batch, own))

        def produce_to_one(count: int) -> list[Figure]:
            case = "produce, 1 partition a request"
            return produce_cycles(case, cluster, sockets, to_one, count, 1)

        def produce_to_many(count: int) -> list[Figure]:
            case = f"produce, {_OF_REQUEST} partitions a request"
            return produce_cycles(case, cluster, sockets, to_many, count, _OF_REQUEST)

        def warm_up(_: int) -> None:
            produce_to_one(1_200)
            produce_to_many(48)

        turn.warm_up(warm_up)
        return [
            Figure("create the topic", Measure.CREATION, created_s),
            *produce_to_one(turn.size(_SINGLE)),
            *produce_to_many(turn.size(_MULTIPLE)),
            _at_rest(turn),
        ]


def leaders() -> list[int]:
    """Return who leads each partition."""
    return [NODES[index % len(NODES)] for index in range(PARTITIONS)]


def _from(requests: list[bytes], number: int) -> list[bytes]:
    """Let each connection begin elsewhere, so that they are not all at the same partition."""
    first = number * len(requests) // _CONNECTIONS_OF_LEADER
    return [*requests[first:], *requests[:first]]


def _at_rest(turn: Turn) -> Figure:
    """Tell what followers that ask and leaders that have nothing new cost."""
    seconds = turn.size(_IDLE_S)
    sample = turn.server.measure(0, 1, lambda: time.sleep(seconds))
    return Figure("at rest", Measure.IDLE_CPU, sample.cpu_s / sample.seconds * 1e3)
