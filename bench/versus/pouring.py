"""Loads of several connections at once, poured by a client that costs next to nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, repeat

from bench.comparison.figures import Measure
from bench.coordinators.client import answer_of, expect
from bench.processes import Sample, Served
from bench.raw_client import PRODUCE_VERSION, Load, call, frame, pour
from bench.versus.figures import Figure
from dohle.core.ids import TopicName
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

#: Small answers are looked at when there are many of them.
_WAKE_BYTES = 32 * 1024


def pour_all(
    server: Served,
    sockets: Sequence[socket.socket],
    requests: Sequence[bytes],
    loads: Sequence[Load],
) -> tuple[Sample, list[bytes]]:
    """Pour a load into each connection; return what that has cost, and the last answers.

    First, each sends one request, whose answer is as long as those to the load.
    """
    sizes = [len(call(sock, request)) for sock, request in zip(sockets, requests, strict=True)]
    last: list[bytes] = []

    def run() -> None:
        with ThreadPoolExecutor(len(sockets)) as threads:
            last.extend(threads.map(pour, sockets, loads, sizes, repeat(_WAKE_BYTES)))

    size, count = sum(load.size for load in loads), sum(load.requests for load in loads)
    return server.measure(size, count, run), last


def produce_cycles(
    case: str,
    server: Served,
    sockets: Sequence[socket.socket],
    cycles: Sequence[Sequence[bytes]],
    count: int,
    batches: int,
) -> list[Figure]:
    """Send so many requests, of so many batches each; each connection goes through its own."""
    each = max(1, count // len(sockets))
    loads = [Load([b"".join(islice(cycle(own), each))], each) for own in cycles]
    sample, last = pour_all(server, sockets, [own[0] for own in cycles], loads)
    sample = sample._replace(requests=sample.requests * batches)
    for answer in last:
        response = answer_of(ProduceResponse, PRODUCE_VERSION, answer)
        expect("Produce", (p.error_code for p in response.responses[0].partition_responses))
    return [
        Figure(case, Measure.RATE, sample.requests / sample.seconds),
        Figure(case, Measure.CPU_PER_REQUEST, sample.cpu_us_per_request),
    ]


def produce_many_frame(topic: TopicName, batch: bytes, partitions: Iterable[int]) -> bytes:
    """Return a Produce request with the same batch for each of the partitions."""
    data = tuple(PartitionProduceData(index=n, records=batch) for n in partitions)
    topics = (TopicProduceData(name=topic, partition_data=data),)
    return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), PRODUCE_VERSION)
