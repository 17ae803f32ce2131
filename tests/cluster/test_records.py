"""Records that were acknowledged by all replicas in sync survive the loss of any one node."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dohle.testing import Cluster
from tests.interop.waiting import wait_until

TOPIC, PARTITIONS = "t", 4
CONFIG = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
}
DEADLINE_S = 60.0
#: Written between two faults, and while a node is away.
RECORDS = 500


class Feed:
    """An idempotent producer that writes numbers, until it is stopped; it keeps what was acked."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "socket.timeout.ms": 5000,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        #: The number at each partition and offset.
        self.acknowledged: dict[tuple[int, int], int] = {}
        #: The partition and number of those whose offset is not told: a leader that was restarted
        #: knows of a producer's last batch alone, and says of older ones only that they are there.
        self.unplaced: set[tuple[int, int]] = set()
        self.failures: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value, partition = str(number).encode(), number % PARTITIONS
            try:
                self._producer.produce(
                    TOPIC, value, partition=partition, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                pass
            self._producer.poll(0.002)
        self._producer.flush(DEADLINE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        partition, offset, number = message.partition(), message.offset(), message.value() or b""
        assert partition is not None
        if offset is None:
            self.unplaced.add((partition, int(number)))
        else:
            self.acknowledged[partition, offset] = int(number)

    @property
    def count(self) -> int:
        return len(self.acknowledged) + len(self.unplaced)

    def await_more(self, records: int) -> None:
        goal = self.count + records
        wait_until(lambda: self.count >= goal, DEADLINE_S)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def read_all(bootstrap: str, count: int) -> dict[tuple[int, int], int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found: dict[tuple[int, int], int] = {}

    def is_read() -> bool:
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None, message.error()
            place: Any = (message.partition(), message.offset())
            found[place] = int(message.value() or b"")
        return len(found) >= count

    try:
        wait_until(is_read, DEADLINE_S)
    finally:
        consumer.close()
    return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config=CONFIG) as running:
        yield running


def hit(cluster: Cluster, rng: random.Random, feed: Feed) -> None:
    """Take one node away while records are written, and let it come back."""
    node = rng.choice(cluster.nodes)
    feed.await_more(RECORDS)
    if rng.random() < 0.4:
        cluster.pause(node)
        feed.await_more(RECORDS)
        cluster.resume(node)
    else:
        cluster.kill(node)
        feed.await_more(RECORDS)
        cluster.restart(node)
    cluster.wait_until_ready()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1])
def test_no_record_is_lost_doubled_or_moved(cluster: Cluster, seed: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values()
    created.result()
    rng, feed = random.Random(seed), Feed(cluster.bootstrap)
    try:
        for _ in range(12):
            hit(cluster, rng, feed)
    finally:
        feed.stop()
    assert feed.failures == []
    found = read_all(cluster.bootstrap, feed.count)
    others = {(partition, number) for (partition, _), number in found.items()}
    others -= {(partition, number) for (partition, _), number in feed.acknowledged.items()}
    assert others == feed.unplaced
    assert {place: found.get(place) for place in feed.acknowledged} == feed.acknowledged
    for partition in range(PARTITIONS):
        numbers = [found[place] for place in sorted(found) if place[0] == partition]
        assert numbers == sorted(set(numbers)), "in the order in which they were sent, and once"
