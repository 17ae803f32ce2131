"""(i) The controllers: how long no topic is created after the active one was killed, and starts.

From ``kill -9`` of the node whose controller is active to the first CreateTopics that is accepted,
through another node, whose client tries all the time. Followers miss their leader after two seconds
(``controller.quorum.fetch.timeout.ms``) on both sides, so that is the least there can be. Then a
broker is stopped and started while there are very many partitions in the cluster: from exec to its
first answer, which it gives when it has the image and a third of the logs.
"""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from statistics import median

from bench.cluster.nodes import NODES, Cluster
from bench.cluster.topics import active_controller, create_topic
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.comparison.warm_up import Limits
from bench.coordinators.client import answer_of
from bench.quorum import create as create_on
from bench.raw_client import call, connect, frame
from bench.versus.figures import Figure
from bench.versus.topics import await_served, create, delete_topics, describe
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TITLE = "controllers"
SETTINGS = {
    "num.partitions": "1",
    # One that was killed may come back when its session is over.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

#: Both refuse a request that writes more than 10,000 records, and one of them is the topic's own.
PARTITIONS = 9_990
_KILLS, _STARTS = 4, 2
_CREATE_VERSION = 7
_RETRY_S = 0.002
_TIMEOUT_S = 60.0
#: An attempt whose answer was lost may have been carried out.
_ACCEPTED = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
#: Timeouts are most of what is measured, and they are the same however warm a server is.
_WARM_UP = Limits(10.0, 20.0, 2.0)


def turn(turn: Turn) -> list[Figure]:
    """Kill active controllers, then start brokers with very many partitions."""
    cluster = turn.server
    _warm_up(turn)
    outages = [_outage(cluster, f"after-{number}") for number in range(turn.size(_KILLS))]
    topic = TopicName("many")
    _create_many(cluster, topic)
    starts = [_start_s(cluster) for _ in range(max(1, turn.size(_STARTS)))]
    return [
        Figure("kill -9 of the active one to CreateTopics", Measure.UNAVAILABLE, median(outages)),
        Figure(f"start of a broker, {PARTITIONS:,} partitions", Measure.CREATION, median(starts)),
    ]


def _warm_up(turn: Turn) -> None:
    """Create topics, and delete them: whoever is faster is not to have more of them later."""
    cluster, numbers = turn.server, itertools.count()
    address = cluster.nodes[NODES[0]].address
    create_topic(cluster, "first", [NODES[0]])
    with connect(address) as sock:

        def create_all(names: list[str]) -> None:
            for name in names:
                create_on(sock, name, 1)

        def load(_: int) -> None:
            names = [f"t-{next(numbers)}" for _ in range(20)]
            cluster.measure(0, len(names), lambda: create_all(names))
            delete_topics(address, *names)

        turn.warm_up(load, limits=None if turn.pace.quick else _WARM_UP)


def _outage(cluster: Cluster, name: str) -> float:
    """Kill the active controller, and return for how long no topic could be made."""
    active = active_controller(cluster)
    other = next(number for number in NODES if number != active)
    request = _request(name, other)
    with connect(cluster.nodes[other].address) as sock:
        begun = time.perf_counter()
        cluster.nodes[active].stop()
        deadline = time.monotonic() + _TIMEOUT_S
        while not _codes(call(sock, request)) <= _ACCEPTED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no controller takes over from node {active}")
            time.sleep(_RETRY_S)
        found_s = time.perf_counter() - begun
    cluster.restart(active)
    # On all nodes and in sync: then the one that was away is back.
    create_topic(cluster, f"{name}-all", [active])
    return found_s


def _request(name: str, broker: int) -> bytes:
    """Return a CreateTopics request for a topic on one broker that runs."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=(BrokerId(broker),))
    topic = CreatableTopic(
        name=TopicName(name), num_partitions=-1, replication_factor=-1, assignments=(assignment,)
    )
    return frame(CreateTopicsRequest(topics=(topic,), timeout_ms=30_000), _CREATE_VERSION)


def _codes(answer: bytes) -> set[int]:
    response = answer_of(CreateTopicsResponse, _CREATE_VERSION, answer)
    return {one.error_code for one in response.topics}


def _create_many(cluster: Cluster, topic: TopicName) -> None:
    """Have a topic whose partitions are spread over all nodes, and wait until they are served."""
    address = cluster.nodes[NODES[0]].address
    create(address, CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1))
    led: dict[int, list[int]] = {number: [] for number in NODES}
    while sum(map(len, led.values())) < PARTITIONS:
        time.sleep(_RETRY_S)
        led = {number: [] for number in NODES}
        for one in describe(address, topic).partitions:
            with suppress(KeyError):
                led[one.leader_id].append(one.partition_index)
    for number, indexes in led.items():
        await_served(cluster.nodes[number].address, topic, indexes)


def _start_s(cluster: Cluster) -> float:
    """Stop a node in good order, start it, and return how long that took."""
    active = active_controller(cluster)
    number = next(number for number in NODES[1:] if number != active)
    node = cluster.nodes[number]
    node.terminate()
    node.await_end()
    cluster.restart(number)
    return node.start_s
