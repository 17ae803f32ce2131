"""Start time and memory, and what many partitions cost those who use only one of them."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from statistics import median

from bench.processes import Process, Sample, broker_in, folder, rounds_of
from bench.raw_client import (
    Load,
    api_versions_frame,
    build_batch,
    call,
    connect,
    create_topics,
    first_produced,
    metadata_frame,
    pour,
    produce_frame,
    repeat,
)
from bench.report import Row, timed
from dohle.core.ids import TopicName

START_S_MAX = 0.7
IDLE_MB_MAX = 70.0
PARTITIONS = 2_000
_PARTITIONS_OF_TOPIC = 10
_TOPICS = [TopicName(f"grown-{number}") for number in range(PARTITIONS // _PARTITIONS_OF_TOPIC)]
_TOPICS_OF_REQUEST = 20
#: A request that names one partition costs the same however many there are; this much is noise.
_GROWTH_MAX = 1.25
_IDLE_S = 1.2


def rows(quick: bool) -> list[Row]:
    """Measure all cases."""
    starts, idle = _starts(2 if quick else 5)
    return [
        Row("start", "exec to first answer", "s", starts, "at most", START_S_MAX, 1.0),
        Row("memory", "idle", "MB", idle, "at most", IDLE_MB_MAX, 1.0),
        *_growth(quick, idle),
        *_life_on_disk(_TOPICS[: 5 if quick else 20], starts),
    ]


def _start(path: str) -> tuple[float, float, Process]:
    """Return the seconds from exec to the first ApiVersions answer, and the memory in MB then."""
    begun = time.perf_counter()
    server = broker_in(path, num_partitions=str(_PARTITIONS_OF_TOPIC))
    try:
        with connect(server.address) as sock:
            call(sock, api_versions_frame())
        return time.perf_counter() - begun, server.rss_mb, server
    except BaseException:
        server.stop()
        raise


def _starts(count: int) -> tuple[float, float]:
    found = []
    for _ in range(count):
        with folder() as path:
            seconds, memory, server = _start(f"{path}/data")
            server.stop()
            found.append((seconds, memory))
    return median(seconds for seconds, _ in found), median(memory for _, memory in found)


def _growth(quick: bool, idle_mb: float) -> list[Row]:
    """Compare a broker with many partitions to one with few; in memory, so that nothing waits."""
    requests, rounds = (5_000, 3) if quick else (30_000, 7)
    with folder(in_memory=True) as path, ExitStack() as stack:
        small = stack.enter_context(_start(f"{path}/small")[2])
        large = stack.enter_context(_start(f"{path}/large")[2])
        create_topics(small.address, _TOPICS[:1])
        _create(large, _TOPICS)
        empty_mb = large.rss_mb
        _write_to_each(large, _TOPICS)
        written_mb = large.rss_mb
        compared = _compared(small, large, requests, rounds)
        large.stop()
        restart_s, _, restarted = _start(f"{path}/large")
        restarted.stop()
    what = f"{PARTITIONS:,} partitions"
    return [
        Row("memory", f"{what}, empty", "MB", empty_mb, "idle", idle_mb),
        Row("memory", f"{what}, each written to", "MB", written_mb, "idle", idle_mb),
        Row("start", f"with {what}", "s", restart_s, "at most", START_S_MAX),
        *compared,
    ]


def _life_on_disk(topics: list[TopicName], empty_start_s: float) -> list[Row]:
    """Create partitions on the disk, stop and start again, beside one synced file for each."""
    count = len(topics) * _PARTITIONS_OF_TOPIC
    with folder() as path:
        took = {}
        _, _, server = _start(f"{path}/data")
        with server:
            took["creating a partition"] = timed(lambda: _create(server, topics))
            _write_to_each(server, topics)
            took["stopping, for each partition"] = timed(server.stop)
        start_s, _, server = _start(f"{path}/data")
        server.stop()
        took["starting, for each partition"] = max(0.0, start_s - empty_start_s)
        synced = timed(lambda: _synced_files(path, count))
    return [
        Row("disk", case, "ms", seconds / count * 1e3, "a synced file", synced / count * 1e3)
        for case, seconds in took.items()
    ]


def _synced_files(path: str, count: int) -> None:
    for number in range(count):
        os.mkdir(f"{path}/{number}")
        fd = os.open(f"{path}/{number}/file", os.O_WRONLY | os.O_CREAT)
        os.write(fd, bytes(100))
        os.fsync(fd)
        os.close(fd)


def _create(server: Process, topics: list[TopicName]) -> None:
    for first in range(0, len(topics), _TOPICS_OF_REQUEST):
        create_topics(server.address, topics[first : first + _TOPICS_OF_REQUEST])


def _write_to_each(server: Process, topics: list[TopicName]) -> None:
    batch = build_batch(100, 1)
    with connect(server.address) as sock:
        for topic in topics:
            for partition in range(_PARTITIONS_OF_TOPIC):
                first_produced(sock, produce_frame(topic, batch, partition))


def _compared(small: Process, large: Process, requests: int, rounds: int) -> list[Row]:
    topic = _TOPICS[0]
    produce = repeat(produce_frame(topic, build_batch(100, 1)), requests)
    metadata = repeat(metadata_frame(topic), requests // 10)

    def load(server: Process, what: Load) -> Sample:
        with connect(server.address) as sock:
            answer_size = len(call(sock, what.blocks[0][: what.size // what.requests]))
            return server.measure(what.size, what.requests, lambda: pour(sock, what, answer_size))

    def idle(server: Process) -> Sample:
        sample = server.measure(1, 1, lambda: time.sleep(_IDLE_S))
        return sample._replace(cpu_s=sample.cpu_s / _IDLE_S)

    medians = rounds_of(
        {
            "produce": lambda: load(large, produce),
            "produce (small)": lambda: load(small, produce),
            "metadata of a topic": lambda: load(large, metadata),
            "metadata of a topic (small)": lambda: load(small, metadata),
            "a second of idling": lambda: idle(large),
            "a second of idling (small)": lambda: idle(small),
        },
        rounds,
    )
    return [
        Row(
            "partitions",
            f"{case}, beside {PARTITIONS:,}",
            "CPU µs",
            sample.cpu_us_per_request,
            f"beside {_PARTITIONS_OF_TOPIC}",
            medians[f"{case} (small)"].cpu_us_per_request,
            None if "idling" in case else _GROWTH_MAX,
        )
        for case, sample in medians.items()
        if not case.endswith("(small)")
    ]
