"""Small requests, beside bare system calls: what one costs, and how long it takes."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median, quantiles
from time import perf_counter

from bench.broker.ceiling import BARE_ANSWER
from bench.processes import Process, Sample, broker, ceiling, rounds_of
from bench.raw_client import (
    Load,
    api_versions_frame,
    appended_at,
    build_batch,
    call,
    ceiling_appending,
    ceiling_reading,
    ceiling_relay,
    connect,
    create_topics,
    fetch_frame,
    fetched_size,
    ping,
    ping_pong,
    pour,
    produce_frame,
    repeat,
)
from bench.report import Row
from dohle.core.ids import TopicName, Uuid

CONNECTIONS = 100
_BARE_ANSWER_BYTES = len(BARE_ANSWER)
_WARM_UP = 50
_TOPIC_NUMBERS = itertools.count(1)


def rows(quick: bool) -> list[Row]:
    """Measure all cases."""
    rounds = 3 if quick else 7
    with ceiling() as bare, broker() as server:
        tiny = _Pair(server, bare, build_batch(100, 1), 1)
        found = tiny.requests(8_000 if quick else 40_000, rounds)
        return found + tiny.latency(300 if quick else 2_000, rounds)


class _Pair:
    """A broker, the bare loops, and what both are fed with."""

    def __init__(self, server: Process, bare: Process, batch: bytes, records: int) -> None:
        self._server, self._bare = server, bare
        self._batch, self._records = batch, records

    def _new_topic(self) -> tuple[TopicName, Uuid]:
        """Start a new log, as the bare loop starts a new file."""
        name = TopicName(f"raw-{next(_TOPIC_NUMBERS)}")
        return name, create_topics(self._server.address, [name])[name]

    # Requests

    def requests(self, count: int, rounds: int) -> list[Row]:
        """Send small requests: many in flight on one connection, and one on each of many."""
        topic, topic_id = self._new_topic()
        request = produce_frame(topic, self._batch)
        with connect(self._server.address) as sock:
            answer_size = len(call(sock, request))
        medians = rounds_of(
            {
                "produce, pipelined": lambda: self._pour_produce(self._new_topic()[0], count),
                "produce, pipelined (bare)": lambda: self._bare_pipelined(request, count),
                "fetch, pipelined": lambda: self._refetch(topic_id, count),
                "fetch, pipelined (bare)": lambda: self._bare_refetch(topic_id, count),
                "produce, 100 connections": lambda: self._many(request, answer_size, count // 4),
                "produce, 100 connections (bare)": lambda: self._bare_many(request, count // 4),
            },
            rounds,
        )
        return [
            Row(
                "requests",
                f"1 record, {case} ({ours.requests / ours.seconds:,.0f}/s)",
                "CPU µs",
                ours.cpu_us_per_request,
                "bare frames",
                medians[f"{case} (bare)"].cpu_us_per_request,
            )
            for case, ours in medians.items()
            if not case.endswith("(bare)")
        ]

    def _pour_produce(self, topic: TopicName, count: int) -> Sample:
        request = produce_frame(topic, self._batch)
        with connect(self._server.address) as sock:
            answer = call(sock, request)
            load = repeat(request, count)
            last: list[bytes] = []
            sample = self._server.measure(
                load.size, count, lambda: last.append(pour(sock, load, len(answer)))
            )
        if appended_at(last[0]) != count * self._records:
            raise RuntimeError("not every request was appended")
        return sample

    def _refetch(self, topic_id: Uuid, count: int) -> Sample:
        request = fetch_frame(topic_id, 0, len(self._batch))
        load = repeat(request, count)
        with connect(self._server.address) as sock:
            answer = call(sock, request)
            if fetched_size(answer) != len(self._batch):
                raise RuntimeError("a fetch has not brought one batch")
            return self._server.measure(load.size, count, lambda: pour(sock, load, len(answer)))

    def _bare_pipelined(self, request: bytes, count: int) -> Sample:
        load = repeat(request, count)
        with ExitStack() as stack:
            (sock,) = ceiling_appending(stack, self._bare.address, self._batch_at(request))
            return self._pour_bare(sock, load, request)

    def _bare_refetch(self, topic_id: Uuid, count: int) -> Sample:
        request = fetch_frame(topic_id, 0, len(self._batch))
        with ExitStack() as stack:
            sock = ceiling_reading(stack, self._bare.address, len(self._batch))
            return self._pour_bare(sock, repeat(request, count), request)

    def _pour_bare(self, sock: socket.socket, load: Load, request: bytes) -> Sample:
        answer = call(sock, request)
        return self._bare.measure(load.size, load.requests, lambda: pour(sock, load, len(answer)))

    def _batch_at(self, request: bytes) -> int:
        return request.index(self._batch)

    def _many(self, request: bytes, answer_size: int, count: int) -> Sample:
        with ExitStack() as stack:
            address = self._server.address
            sockets = [stack.enter_context(connect(address)) for _ in range(CONNECTIONS)]
            ping_pong(sockets, request, answer_size, CONNECTIONS)
            return self._server.measure(
                count * len(request),
                count,
                lambda: ping_pong(sockets, request, answer_size, count),
            )

    def _bare_many(self, request: bytes, count: int) -> Sample:
        with ExitStack() as stack:
            sockets = ceiling_appending(
                stack, self._bare.address, self._batch_at(request), CONNECTIONS
            )
            ping_pong(sockets, request, _BARE_ANSWER_BYTES, CONNECTIONS)
            return self._bare.measure(
                count * len(request),
                count,
                lambda: ping_pong(sockets, request, _BARE_ANSWER_BYTES, count),
            )

    # Latency

    def latency(self, count: int, rounds: int) -> list[Row]:
        """Measure one request in flight, and a record on its way to a reader that waits for it."""
        cases: dict[str, Callable[[int], list[float]]] = {
            "ping produce": self._pings,
            "ping produce (bare)": self._bare_pings,
            "produce → long poll": self._long_polls,
            "produce → long poll (bare)": self._bare_relays,
        }
        found: dict[str, list[list[float]]] = {case: [] for case in cases}
        for _ in range(rounds):
            for case, measure in cases.items():
                cuts = quantiles(measure(_WARM_UP + count)[_WARM_UP:], n=100)
                found[case].append([cuts[49], cuts[98]])
        medians = {
            case: [median(column) * 1e6 for column in zip(*values, strict=True)]
            for case, values in found.items()
        }
        return [
            Row(
                "latency",
                f"{case}, {quantile}",
                "µs",
                ours[place],
                "bare frames",
                medians[f"{case} (bare)"][place],
            )
            for case, ours in medians.items()
            if not case.endswith("(bare)")
            for place, quantile in enumerate(("p50", "p99"))
        ]

    def _pings(self, count: int) -> list[float]:
        request = produce_frame(self._new_topic()[0], self._batch)
        with connect(self._server.address) as sock:
            answer_size = len(call(sock, request))
            return [ping(sock, request, answer_size) for _ in range(count)]

    def _bare_pings(self, count: int) -> list[float]:
        request = produce_frame(TopicName("raw-0"), self._batch)
        with ExitStack() as stack:
            (sock,) = ceiling_appending(stack, self._bare.address, self._batch_at(request))
            return [ping(sock, request, _BARE_ANSWER_BYTES) for _ in range(count)]

    def _long_polls(self, count: int) -> list[float]:
        """Measure from a produce request to the answer of a fetch that waits for it.

        An answer on a third connection shows that the fetch has been read and is waiting.
        """
        topic, topic_id = self._new_topic()
        request, check = produce_frame(topic, self._batch), api_versions_frame()
        address, size = self._server.address, len(self._batch)
        with connect(address) as writer, connect(address) as reader, connect(address) as third:
            answer_size = len(call(writer, request))
            check_size = len(call(third, check))
            fetched = len(call(reader, fetch_frame(topic_id, 0, size)))
            found = []
            for offset in range(1, count + 1):
                reader.sendall(fetch_frame(topic_id, offset, size, wait_ms=10_000))
                ping(third, check, check_size)
                found.append(_passed_on(writer, reader, request, answer_size, fetched))
            return found

    def _bare_relays(self, count: int) -> list[float]:
        request = produce_frame(TopicName("raw-0"), self._batch)
        with ExitStack() as stack:
            writer, reader = ceiling_relay(stack, self._bare.address)
            return [
                _passed_on(writer, reader, request, _BARE_ANSWER_BYTES, len(request))
                for _ in range(count)
            ]


def _passed_on(
    writer: socket.socket, reader: socket.socket, request: bytes, answer_size: int, size: int
) -> float:
    start = perf_counter()
    writer.send(request)
    received = len(reader.recv(size, socket.MSG_WAITALL))
    took = perf_counter() - start
    if received != size or len(writer.recv(answer_size, socket.MSG_WAITALL)) != answer_size:
        raise ConnectionError("an answer was cut off")
    return took
