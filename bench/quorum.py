"""The controllers: commands, very many partitions, and the time until the next one takes over.

Each figure is beside what it cannot be less than, or what it is to stay below: a command beside a
sync of the same disk, 10,000 partitions beside ten times 1,000, a start with them beside an empty
one, a failover beside the time after which followers miss their leader.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import struct
import time
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import count
from statistics import median

from bench.coordinators.client import answer_of, expect
from bench.processes import Sample, broker, broker_in, folder, rounds_of
from bench.raw_client import call, connect, frame
from bench.report import Row, interleave, timed
from dohle.client import Admin, ClientConfig, NewTopic
from dohle.client import Cluster as Client
from dohle.client import run as run_client
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.metadata.image import EMPTY_IMAGE
from dohle.metadata.replay import apply
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.records.cluster_metadata import PartitionRecord, TopicRecord
from dohle.protocol.record_framing import decode_metadata_record, encode_metadata_record
from dohle.protocol.schema import MetadataRecord
from dohle.testing import Cluster

PARTITIONS = 10_000
#: A request may write 10,000 records (A5), the topic's own among them.
_OF_A_REQUEST = 9_990
#: What a partition of the image may take.
IMAGE_BYTES_MAX = 1_500.0
#: controller.quorum.fetch.timeout.ms: no follower looks for another leader before.
FETCH_TIMEOUT_S = 2.0

_VERSION = 7
_COMMANDS, _COMMANDS_QUICK = 500, 100
_RECORDS_AT_ONCE = 1_000
#: As SO_RCVTIMEO wants it: thousands of folders take a busy disk long.
_PATIENCE = struct.pack("ll", 300, 0)


def run(quick: bool = False) -> list[Row]:
    """Measure all cases."""
    rounds = 1 if quick else 3
    return [
        *_memory(),
        _commands(_COMMANDS_QUICK if quick else _COMMANDS, rounds),
        *_creation(rounds),
        _start(rounds),
        _failover(rounds),
    ]


# Memory of the image


def _memory() -> list[Row]:
    return [
        Row(
            "quorum",
            f"memory of the image, {PARTITIONS // each:,} topics of {each:,} partitions × 3",
            "B a partition",
            _image_bytes(PARTITIONS // each, each) / PARTITIONS,
            "what is wanted",
            IMAGE_BYTES_MAX,
            reach=1.0,
        )
        for each in (1, 100)
    ]


def _image_bytes(topics: int, partitions: int) -> int:
    """Replay the records of topics as they come from the log; return what stays in memory."""
    rng = random.Random(1)
    encoded = [
        encode_metadata_record(record, record.VERSIONS.highest)
        for number in range(topics)
        for record in _topic(rng, f"topic-{number}", partitions)
    ]
    gc.collect()
    tracemalloc.start()
    try:
        image, offset = EMPTY_IMAGE, 0
        for first in range(0, len(encoded), _RECORDS_AT_ONCE):
            some = encoded[first : first + _RECORDS_AT_ONCE]
            offset += len(some)
            image, _ = apply(image, [decode_metadata_record(one) for one in some], offset, 1)
        del _
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        assert len(image.topics) == topics
        return size
    finally:
        tracemalloc.stop()


def _topic(rng: random.Random, name: str, partitions: int) -> list[MetadataRecord]:
    topic_id = Uuid(rng.randbytes(16))
    found: list[MetadataRecord] = [TopicRecord(name=TopicName(name), topic_id=topic_id)]
    for index in range(partitions):
        replicas = tuple(BrokerId(1 + (index + place) % 6) for place in range(3))
        found.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                # So high that no two partitions share the number.
                leader_epoch=rng.randrange(300, 10_000),
                partition_epoch=rng.randrange(300, 10_000),
                directories=tuple(Uuid(bytes(15) + bytes([64 + one])) for one in replicas),
            )
        )
    return found


# Commands


def create(sock: socket.socket, name: str, partitions: int) -> None:
    """Create a topic with one request, and return when it is answered."""
    topic = CreatableTopic(name=TopicName(name), num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=60_000)
    answer = answer_of(CreateTopicsResponse, _VERSION, call(sock, frame(request, _VERSION)))
    expect("CreateTopics", (one.error_code for one in answer.topics))


def _commands(count: int, rounds: int) -> Row:
    """Create topics one after the other, each of which is on the disk before it is answered."""

    def ours() -> float:
        with broker() as server, connect(server.address) as sock:
            create(sock, "warm-up", 1)
            return timed(lambda: _create_all(sock, [1] * count))

    def syncs() -> float:
        with folder() as path:
            fd = os.open(f"{path}/file", os.O_WRONLY | os.O_CREAT)
            try:
                return timed(lambda: _write_and_sync(fd, count))
            finally:
                os.close(fd)

    times = interleave({"ours": ours, "syncs": syncs}, rounds)
    case = f"{count} CreateTopics of 1 partition ({count / times['ours']:,.0f} commands/s)"
    return Row("quorum", case, "s", times["ours"], "as many syncs", times["syncs"])


def _write_and_sync(fd: int, count: int) -> None:
    for _ in range(count):
        os.write(fd, bytes(500))
        os.fdatasync(fd)


def _creation(rounds: int) -> list[Row]:
    """Create many partitions with one request, and wait until it is answered."""
    tenth = _OF_A_REQUEST // 10
    cases = {"ours": [_OF_A_REQUEST], "parts": [tenth] * 10}
    numbers = count()

    def creating(sizes: Sequence[int], place: str) -> Callable[[], Sample]:
        def measure() -> Sample:
            # Nothing is removed between rounds: a file system without a journal takes several times
            # as long to make files for a minute after very many were removed.
            at = broker_in(f"{place}/{next(numbers)}", ends_cleanly=False)
            with at as server, connect(server.address) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)
                create(sock, "warm-up", 1)
                return server.measure(0, len(sizes), lambda: _create_all(sock, sizes))

        return measure

    with folder() as path:
        found = rounds_of({name: creating(sizes, path) for name, sizes in cases.items()}, rounds)
    ours, parts = found["ours"], found["parts"]
    case, peer = f"CreateTopics of {_OF_A_REQUEST:,} partitions", f"10 × {tenth:,}"
    return [
        Row("quorum", case, "s", ours.seconds, peer, parts.seconds, reach=1.5),
        Row("quorum", case, "CPU s", ours.cpu_s, peer, parts.cpu_s, reach=1.5),
    ]


def _create_all(sock: socket.socket, sizes: Sequence[int]) -> None:
    for number, size in enumerate(sizes):
        create(sock, f"many-{number}", size)


def _start(rounds: int) -> Row:
    """Start a broker that has many partitions, after a clean stop."""
    with folder() as path:
        full, empty = f"{path}/full", f"{path}/empty"
        half = PARTITIONS // 2
        for place, sizes in ((full, (half, half)), (empty, (1,))):
            with broker_in(place) as server, connect(server.address) as sock:
                _create_all(sock, sizes)

        def starting(place: str) -> float:
            begun = time.perf_counter()
            with broker_in(place):
                return time.perf_counter() - begun

        cases = {"ours": lambda: starting(full), "empty": lambda: starting(empty)}
        times = interleave(cases, rounds)
    case = f"start with {PARTITIONS:,} partitions"
    return Row("quorum", case, "s", times["ours"], "with one", times["empty"])


# Failover


def _failover(rounds: int) -> Row:
    """Kill the active controller of three, and create a topic as soon as that is possible."""
    with Cluster(nodes=3) as cluster:
        times = [_fail_over(cluster, number) for number in range(rounds)]
    return Row(
        "quorum",
        "kill -9 of the active controller to the next CreateTopics",
        "s",
        median(times),
        "fetch timeout",
        FETCH_TIMEOUT_S,
    )


def _fail_over(cluster: Cluster, number: int) -> float:
    leader = cluster.leader()
    others = [cluster.address(node) for node in cluster.nodes if node != leader]
    config = ClientConfig(request_timeout_ms=5_000, api_timeout_ms=60_000, retry_backoff_ms=20)

    async def create_by_client(bootstrap: str, topic: str) -> None:
        async with Client(bootstrap, config) as client:
            (await Admin(client).create_topics([NewTopic(topic, partitions=1)])).ok()

    run_client(create_by_client(",".join(others), f"before-{number}"))
    cluster.kill(leader)
    seconds = timed(lambda: run_client(create_by_client(",".join(others), f"after-{number}")))
    cluster.restart(leader)
    cluster.wait_until_ready()
    return seconds
