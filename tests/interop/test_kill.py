"""kill -9 under load: what was acknowledged is there, once, in order, at its offset.

Librdkafka's producers write while the broker is killed at random moments, some of them during its
recovery, and started again on the same data and port. What they were told is then compared with
what the log has.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.interop.wire import Closed, Wire, batch_of

ROUNDS = 20
CREATION_ROUNDS = 6
PARTITIONS = 3
#: Every so many rounds the broker is killed once more before it has come up.
KILL_IN_RECOVERY_EVERY = 4
RECORDS_PER_ROUND_MAX = 4_000
IN_FLIGHT_RECORDS_MAX = 3_000
VALUE_BYTES = 200


class Load:
    """A producer that never stops, in a thread, and what it was told about its records.

    Records are numbered by partition; a record's value begins with its number.
    """

    def __init__(self, bootstrap: str, topic: str, seed: int, *, idempotent: bool) -> None:
        self.topic = topic
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        self.acknowledged_count = 0
        self.written: dict[int, int] = defaultdict(int)
        self.failures: list[str] = []
        self._rng = random.Random(seed)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": -1,
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "compression.type": "lz4" if idempotent else "none",
                "batch.num.messages": 200,
                "linger.ms": 1,
                "message.timeout.ms": 90_000,
                "retries": 10_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(str(error))

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.001)
            for _ in range(self._rng.randrange(200)):
                if len(self._producer) >= IN_FLIGHT_RECORDS_MAX:
                    self._producer.poll(0.01)
                    break
                self._write(self._rng.randrange(PARTITIONS))

    def _write(self, partition: int) -> None:
        number = self.written[partition]
        self.written[partition] += 1

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{self.topic}-{partition} record {number}: {error}")
                return
            self.acknowledged[partition][number] = message.offset()
            self.acknowledged_count += 1

        value = b"%d " % number + bytes(VALUE_BYTES)
        self._producer.produce(self.topic, value, partition=partition, on_delivery=delivered)

    def await_more(self, count: int) -> None:
        """Wait until so many more records have been acknowledged."""
        goal = self.acknowledged_count + count
        wait_until(lambda: self.acknowledged_count >= goal)

    def finish(self) -> None:
        """Stop writing and wait for every record to be acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def stored_numbers(bootstrap: str, topic: str, partition: int) -> list[int]:
    """Return the number of the record at every offset."""
    with Wire(bootstrap) as wire:
        records = [record for batch in wire.stored_batches(topic, partition) for record in batch]
    assert [record.offset for record in records] == list(range(len(records)))
    return [int((record.value or b"").split(b" ")[0]) for record in records]


def kill_rounds(broker: BrokerProcess, loads: list[Load], rng: random.Random) -> None:
    pause = threading.Event()
    for number in range(ROUNDS):
        for load in loads:
            load.await_more(rng.randrange(1, RECORDS_PER_ROUND_MAX))
        # So that the moment does not follow from an acknowledgement.
        pause.wait(rng.uniform(0, 0.03))
        broker.kill()
        if number % KILL_IN_RECOVERY_EVERY == 0:
            broker.spawn()
            pause.wait(rng.uniform(0.1, 0.6))
            broker.kill()
        broker.start()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_acknowledged_records_survive_kills(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, port=free_port()) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("once", PARTITIONS)
            wire.create_topic("at-least-once", PARTITIONS, segment_bytes=str(1 << 20))
        loads = [
            Load(broker.bootstrap, "once", 1, idempotent=True),
            Load(broker.bootstrap, "at-least-once", 2, idempotent=False),
        ]
        for load in loads:
            load.start()
        try:
            kill_rounds(broker, loads, random.Random(3))
        finally:
            for load in loads:
                load.finish()

        for load in loads:
            assert load.failures == []
            assert load.acknowledged_count == sum(load.written.values())
        once, at_least_once = loads
        for partition in range(PARTITIONS):
            check_once(broker, once, partition)
            check_at_least_once(broker, at_least_once, partition)
        assert broker.stop() == 0
        assert broker.failures == []

        # And after a stop that was clean.
        broker.start()
        for partition in range(PARTITIONS):
            check_once(broker, once, partition)


def check_once(broker: BrokerProcess, load: Load, partition: int) -> None:
    stored = stored_numbers(broker.bootstrap, load.topic, partition)
    assert stored == list(range(load.written[partition]))
    assert load.acknowledged[partition] == {number: number for number in stored}


def check_at_least_once(broker: BrokerProcess, load: Load, partition: int) -> None:
    """Each is where it was said to be; a batch may be there twice, but no record before another."""
    stored = stored_numbers(broker.bootstrap, load.topic, partition)
    assert set(stored) == set(range(load.written[partition]))
    for number, offset in load.acknowledged[partition].items():
        assert stored[offset] == number
    firsts = list(dict.fromkeys(stored))
    assert firsts == sorted(firsts)


class Creating:
    """Creates topics one after the other, in a thread, until the broker goes away."""

    def __init__(self, bootstrap: str, names: Iterator[str]) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self._bootstrap = bootstrap
        self._names = names
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(Closed, OSError), Wire(self._bootstrap) as wire:
            for name in self._names:
                topic = CreatableTopic(name=TopicName(name), num_partitions=2, replication_factor=1)
                reply = wire.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, 7)
                assert reply.topics[0].error_code == 0
                self.topic_ids[name] = reply.topics[0].topic_id

    def await_some(self, goal: int) -> None:
        wait_until(lambda: len(self.topic_ids) >= goal)

    def join(self) -> None:
        self._thread.join()


def test_created_topics_survive_kills(tmp_path: Path) -> None:
    rng = random.Random(4)
    names = (f"topic-{number}" for number in count())
    created: dict[str, bytes] = {}
    with BrokerProcess(tmp_path, port=free_port()) as broker:
        for _ in range(CREATION_ROUNDS):
            creating = Creating(broker.bootstrap, names)
            creating.await_some(rng.randrange(1, 20))
            broker.kill()
            creating.join()
            created |= creating.topic_ids
            broker.start()

            with Wire(broker.bootstrap) as wire:
                reply = wire.ask(MetadataRequest(topics=None), MetadataResponse, 12)
                found = {topic.name: topic.topic_id for topic in reply.topics}
                # One more may be there: written, but not yet answered.
                assert created.items() <= found.items()
                assert all(len(topic.partitions) == 2 for topic in reply.topics)
                for name in creating.topic_ids:
                    assert wire.produce(name, batch_of(b"value"), partition=1).base_offset == 0
        assert broker.failures == []
