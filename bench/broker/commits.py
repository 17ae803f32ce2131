"""Produce with acks=all when a commit takes a millisecond, beside one that takes no time.

One connection has many requests in flight. If it waited for each answer, or for what was read at
once, it would get no further than the round trips to the follower allow.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from bench.broker.followed import FOLLOWED, PEAK
from bench.processes import Process, Sample, folder, rounds_of
from bench.raw_client import (
    appended_at,
    build_batch,
    call,
    connect,
    create_topics,
    pour,
    produce_frame,
    repeat,
)
from bench.report import Row
from dohle.core.ids import TopicName

#: So many requests of one connection must be able to wait at once.
IN_FLIGHT_MIN = 100
#: So much longer may it take.
_TIME_MAX = 1.1
_NUMBERS = itertools.count(1)


def rows(quick: bool) -> list[Row]:
    """Measure all cases."""
    count, rounds = (20_000, 5) if quick else (60_000, 9)
    with folder() as path, Process("bench.broker.followed", path) as server:
        medians = rounds_of(
            {
                "delayed": lambda: _produce(server, FOLLOWED, count),
                "at once": lambda: _produce(server, "alone-", count),
            },
            rounds,
        )
        peak = int(Path(path, PEAK).read_text())
    delayed, at_once = medians["delayed"], medians["at once"]
    rate = f"({delayed.requests / delayed.seconds:,.0f}/s)"
    return [
        Row(
            "commits",
            f"1 record, acks=all, pipelined, committed 1 ms later {rate}",
            "µs",
            delayed.seconds / delayed.requests * 1e6,
            "committed at once",
            at_once.seconds / at_once.requests * 1e6,
            _TIME_MAX,
        ),
        Row(
            "commits",
            "the same",
            "CPU µs",
            delayed.cpu_us_per_request,
            "committed at once",
            at_once.cpu_us_per_request,
        ),
        Row(
            "commits",
            "least number of requests of a connection that must be able to wait at once",
            "requests",
            IN_FLIGHT_MIN,
            "seen",
            peak,
            1.0,
        ),
    ]


def _produce(server: Process, prefix: str, count: int) -> Sample:
    topic = TopicName(f"{prefix}{next(_NUMBERS)}")
    create_topics(server.address, [topic])
    request = produce_frame(topic, build_batch(100, 1))
    with connect(server.address) as sock:
        answer_size = len(call(sock, request))
        load = repeat(request, count)
        last: list[bytes] = []
        sample = server.measure(
            load.size, count, lambda: last.append(pour(sock, load, answer_size))
        )
    if appended_at(last[0]) != count:
        raise RuntimeError("not every request was appended")
    return sample
