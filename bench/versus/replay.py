"""(c) Requests that were built before, on raw sockets: what each server can do at most.

The client sends without looking, many requests ahead, and drops the answers unread (only the last
of each connection is looked at), so nearly all of the machine is the server's. There are several
connections, each with a partition of its own, since Kafka serves one request of a connection at a
time. Records are uncompressed and without producer ids.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import dataclass

from bench.comparison.figures import Measure
from bench.coordinators.client import connect_many
from bench.processes import Sample, Served
from bench.raw_client import (
    Load,
    appended_at,
    build_batch,
    fetch_frame,
    fetched_size,
    produce_frame,
    repeat,
)
from bench.versus.figures import Figure
from bench.versus.pouring import pour_all
from bench.versus.topics import Place, delete_topics, place
from bench.versus.turns import Turn

TITLE = "replay"
SETTINGS = {"num.partitions": "1"}

CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class Batches:
    """What is sent: batches of a size, and how many bytes (or requests) of them."""

    name: str
    records: int
    record_size: int
    total: int
    passes: int
    counts_requests: bool = False


LOADS = (
    Batches("1 MB batches", 1_000, 1_000, 400, 3),
    Batches("16 KB batches", 16, 1_000, 12_000, 3),
    Batches("1 record of 100 B", 1, 100, 60_000, 1, counts_requests=True),
)


def turn(turn: Turn) -> list[Figure]:
    """Produce and fetch with batches of each size."""
    turn.warm_up(lambda number: warm_up(turn, number))
    found = []
    for number, batches in enumerate(LOADS):
        where = place(turn.server.address, f"replay-{number}", CONNECTIONS)
        replay = Replay(turn.server, where, batches, turn.size(batches.total))
        produced, fetched = replay.run()
        found += figures(f"produce, {batches.name}", batches, produced)
        found += figures(f"fetch, {batches.name}", batches, fetched)
    return found


def figures(case: str, batches: Batches, sample: Sample) -> list[Figure]:
    """Tell what a load has cost, in the units that fit it."""
    if batches.counts_requests:
        return [
            Figure(case, Measure.RATE, sample.requests / sample.seconds),
            Figure(case, Measure.CPU_PER_REQUEST, sample.cpu_us_per_request),
        ]
    return [
        Figure(case, Measure.THROUGHPUT, sample.mb_per_s),
        Figure(case, Measure.CPU_PER_GB, sample.cpu_s_per_gb),
    ]


def warm_up(turn: Turn, number: int) -> None:
    """Do an eighth of everything, with topics of this number."""
    address = turn.server.address
    for which, batches in enumerate(LOADS):
        topic = f"warm-{number}-{which}"
        where = place(address, topic, CONNECTIONS)
        Replay(turn.server, where, batches, turn.size(batches.total) // 8).run()
        delete_topics(address, topic)


class Replay:
    """A topic, with a partition for each connection, and what goes there and back."""

    def __init__(self, server: Served, place: Place, batches: Batches, total: int) -> None:
        self._server = server
        self._address, self._topic, self._topic_id = place
        self._batch = build_batch(batches.record_size, batches.records)
        self._records, self._passes = batches.records, batches.passes
        self._each = max(1, total // CONNECTIONS)

    def run(self) -> tuple[Sample, Sample]:
        """Produce, then fetch what was produced."""
        with ExitStack() as stack:
            sockets = connect_many(stack, self._address, CONNECTIONS)
            return self.produce(sockets), self.fetch(sockets)

    def produce(self, sockets: list[socket.socket]) -> Sample:
        """Produce on these connections, to a partition each."""
        requests = [produce_frame(self._topic, self._batch, n) for n in range(CONNECTIONS)]
        loads = [repeat(request, self._each) for request in requests]
        sample, last = pour_all(self._server, sockets, requests, loads)
        if {appended_at(answer) for answer in last} != {self._each * self._records}:
            raise RuntimeError("not every request was appended")
        return sample

    def fetch(self, sockets: list[socket.socket]) -> Sample:
        """Fetch what was produced."""
        loads = []
        for n in range(CONNECTIONS):
            once = b"".join(self._fetch_frame(n, number) for number in range(self._each))
            loads.append(Load([once] * self._passes, self._each * self._passes))
        requests = [self._fetch_frame(n, 0) for n in range(CONNECTIONS)]
        sample, last = pour_all(self._server, sockets, requests, loads)
        if {fetched_size(answer) for answer in last} != {len(self._batch)}:
            raise RuntimeError("not every fetch has brought one batch")
        return sample._replace(size=sample.requests * len(self._batch))

    def _fetch_frame(self, partition: int, number: int) -> bytes:
        offset, size = number * self._records, len(self._batch)
        return fetch_frame(self._topic_id, offset, size, partition=partition)
