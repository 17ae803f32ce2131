"""(g) How long nothing can be written after the leader of a partition has ended.

A client writes with acks=all, one record at a time, and asks who leads as soon as a write fails.
Counted is the longest time without an acknowledgement, until another leader gives one. A leader
that is killed is missed when its session ends: both have sessions of three seconds.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle, pairwise
from statistics import median

from bench.cluster import replay
from bench.cluster.nodes import NODES, Cluster
from bench.cluster.topics import active_controller, await_in_sync, create_topic
from bench.cluster.turns import Turn
from bench.comparison.figures import Measure
from bench.raw_client import appended_at, build_batch, call, connect, produce_frame
from bench.versus.figures import Figure
from bench.versus.servers import Server
from bench.versus.topics import describe
from dohle.core.ids import TopicName

TITLE = "failover"
SETTINGS = {
    "num.partitions": "1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

_TIMES = 4
_BEFORE_S = 0.5
_RETRY_S = 0.002
_TIMEOUT_S = 60.0


def turn(turn: Turn) -> list[Figure]:
    """End leaders in each way, again and again."""
    turn.warm_up(lambda number: replay.warm_up(turn, number))
    cluster = turn.server
    cases: dict[str, tuple[Callable[[Server], object], bool]] = {
        "a leader is killed": (Server.stop, False),
        "a leader that is the active controller is killed": (Server.stop, True),
        "a leader is shut down": (Server.terminate, False),
    }
    found = []
    for number, (case, (end, is_active)) in enumerate(cases.items()):
        times = [
            _outage(cluster, f"failing-{number}-{again}", end, is_active=is_active)
            for again in range(turn.size(_TIMES))
        ]
        found.append(Figure(case, Measure.UNAVAILABLE, median(times)))
    return found


def _outage(
    cluster: Cluster, name: str, end: Callable[[Server], object], *, is_active: bool
) -> float:
    active = active_controller(cluster)
    leader = active if is_active else next(number for number in NODES if number != active)
    place = create_topic(cluster, name, [leader])
    writer = _Writer(cluster, place.topic, leader)
    try:
        writer.write_until(lambda acks: acks[-1] - acks[0] >= _BEFORE_S)
        end(cluster.nodes[leader])
        writer.write_until(lambda acks: writer.leader != leader)
    finally:
        writer.close()
    cluster.nodes[leader].await_end()
    cluster.restart(leader)
    await_in_sync(cluster, place.topic, 1)
    return longest_gap(writer.acks)


def longest_gap(times: Sequence[float]) -> float:
    """Return the longest time between two of these that follow each other."""
    return max(later - earlier for earlier, later in pairwise(times))


class _Writer:
    """Writes to whoever leads, and notes when it was acknowledged."""

    def __init__(self, cluster: Cluster, topic: TopicName, leader: int) -> None:
        self._cluster, self._topic = cluster, topic
        #: Who has acknowledged last.
        self.leader = leader
        self.acks: list[float] = []
        self._request = produce_frame(topic, build_batch(100, 1))
        self._asked = cycle(NODES)
        self._sock: socket.socket | None = None

    def write_until(self, is_enough: Callable[[list[float]], bool]) -> None:
        """Write until it is enough, which is asked after each acknowledgement."""
        deadline = time.monotonic() + _TIMEOUT_S
        candidate = self.leader
        while True:
            try:
                if self._sock is None:
                    self._sock = connect(self._cluster.nodes[candidate].address)
                appended_at(call(self._sock, self._request))
            except (OSError, RuntimeError):
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
                candidate = self._find_leader(candidate)
                continue
            self.leader = candidate
            self.acks.append(time.perf_counter())
            if is_enough(self.acks):
                return

    def _find_leader(self, otherwise: int) -> int:
        """Ask the next node that answers."""
        for number in [next(self._asked) for _ in NODES]:
            with suppress(OSError):
                found = describe(self._cluster.nodes[number].address, self._topic)
                leaders = [one.leader_id for one in found.partitions if one.leader_id in NODES]
                return leaders[0] if leaders else otherwise
        return otherwise

    def close(self) -> None:
        """Drop the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
