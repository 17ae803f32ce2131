"""Clients in the background: a producer that never stops, and a consumer behind it.

They are librdkafka's, unless a test has Java's (``java_load.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import confluent_kafka

from dohle.core.ids import TopicName
from dohle.testing.checking.checks import check
from dohle.testing.checking.history import History, Partition, Reading
from tests.interop.load import PARTITIONS, Load
from tests.interop.waiting import wait_until
from tests.mixed.administration import Operator
from tests.mixed.java_load import JavaLoad
from tests.mixed.nodes import DEADLINE_S, MixedCluster, Node

#: About a thousand records a second: the brokers have other things to do, too.
_BURST_MAX = 4


class Reader:
    """A consumer in a thread that reads all partitions from the beginning, as they grow."""

    def __init__(self, bootstrap: str, topic: TopicName, history: History) -> None:
        self._readings = [self._reading(topic, index, history) for index in range(PARTITIONS)]
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-of-{topic}",
                "enable.auto.commit": False,
                # It is nowhere else than at the beginning, and may not go there again.
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        )
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _reading(self, topic: TopicName, index: int, history: History) -> Reading:
        return history.read_by("librdkafka", Partition(topic, index))

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                self._take(message)
        self._consumer.close()

    def _take(self, message: Any) -> None:
        if message.error() is not None:
            self.failures.append(str(message.error()))
            return
        reading = self._readings[message.partition()]
        reading.given(message.offset(), message.value().split(b" ")[0], 0)
        self._positions[message.partition()] = message.offset() + 1

    def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        self._thread.join()

    def finish(self, ends: dict[int, int]) -> None:
        """Read on to these ends, and stop."""
        try:
            wait_until(lambda: self._positions == ends, DEADLINE_S)
        finally:
            self.stop()

    @property
    def records(self) -> dict[Partition, list[tuple[int, bytes]]]:
        """All that it has read."""
        return {reading.partition: reading.records for reading in self._readings}


class Writing(Protocol):
    """A producer in the background."""

    history: History
    failures: list[str]
    acknowledged_count: int
    written: dict[int, int]

    def await_more(self, count: int, deadline_s: float) -> None: ...

    def stop(self) -> None: ...

    def finish(self) -> None: ...


class ReadingOn(Protocol):
    """A consumer in the background."""

    failures: list[str]

    def stop(self) -> None: ...

    def finish(self, ends: dict[int, int]) -> None: ...

    @property
    def records(self) -> dict[Partition, list[tuple[int, bytes]]]: ...


class Traffic:
    """What is written and read while a test does something to the cluster."""

    def __init__(self, topic: TopicName, load: Writing, reader: ReadingOn) -> None:
        self.topic = topic
        self._load = load
        self._reader = reader

    def flow(self, records: int = 300) -> None:
        """See that it goes on: wait until so many more records are acknowledged."""
        self._load.await_more(records, DEADLINE_S)

    def stop(self) -> None:
        """Give up, without a verdict."""
        self._load.stop()
        self._reader.stop()

    @property
    def records(self) -> dict[Partition, list[tuple[int, bytes]]]:
        """All that was read."""
        return self._reader.records

    def judge(self, operator: Operator) -> None:
        """Stop; what was read is what was acknowledged, all of it, once and in order."""
        load, reader = self._load, self._reader
        load.finish()
        reader.finish(operator.ends(self.topic))
        failures = load.failures + reader.failures
        assert not failures, failures
        assert load.acknowledged_count == sum(load.written.values())
        load.history.final.update(reader.records)
        found = check(load.history)
        assert not found, found


@contextmanager
def traffic(cluster: MixedCluster, operator: Operator, *replicas: Node) -> Iterator[Traffic]:
    """Let records flow through a new topic, with a replica on each broker unless they are told."""
    topic = operator.create("traffic", PARTITIONS, replicas=replicas)
    # With several in flight librdkafka may write records twice when their leader changes, whoever
    # the brokers are: it takes a new epoch after OUT_OF_ORDER_SEQUENCE_NUMBER (its issue 4953).
    load = Load(cluster.bootstrap, topic, 1, idempotent=True, burst_max=_BURST_MAX, in_flight_max=1)
    reader = Reader(cluster.bootstrap, topic, load.history)
    load.begin()
    load.start()
    reader.start()
    with judged(Traffic(topic, load, reader), operator) as flowing:
        yield flowing


@contextmanager
def java_traffic(cluster: MixedCluster, operator: Operator, topic: TopicName) -> Iterator[Traffic]:
    """Let Java's clients do the same with this topic, with several requests in flight."""
    load = JavaLoad(cluster.classpath, cluster.bootstrap, topic)
    with judged(Traffic(topic, load, load), operator) as flowing:
        load.start()
        yield flowing


@contextmanager
def judged(going_on: Traffic, operator: Operator) -> Iterator[Traffic]:
    try:
        yield going_on
        going_on.judge(operator)
    except BaseException:
        going_on.stop()
        raise
