"""A load on a broker that gets killed or moves its logs, and the check of what it was told."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from typing import Any

import confluent_kafka

from dohle.testing.checking.checks import check
from dohle.testing.checking.history import Delivery, History, Partition, SentRecord
from tests.interop.process import BrokerProcess
from tests.interop.waiting import DEADLINE_S, wait_until
from tests.interop.wire import Wire

PARTITIONS = 3
IN_FLIGHT_RECORDS_MAX = 3_000
VALUE_BYTES = 200


class Load:
    """A producer that never stops, in a thread, and what it was told about its records.

    Records are numbered by partition; a record's value begins with its number.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        seed: int,
        *,
        idempotent: bool,
        burst_max: int = 200,
        in_flight_max: int = 5,
    ) -> None:
        """Between two polls it writes up to ``burst_max`` records.

        Without idempotence one request is in flight, whatever ``in_flight_max`` says.
        """
        self.topic = topic
        #: What it has sent and was told; the values are the numbers.
        self.history = History()
        self._delivery = Delivery.EXACTLY_ONCE if idempotent else Delivery.AT_LEAST_ONCE
        self.acknowledged_count = 0
        self.written: dict[int, int] = defaultdict(int)
        self.failures: list[str] = []
        self._rng = random.Random(seed)
        self._burst_max = burst_max
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": -1,
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": in_flight_max if idempotent else 1,
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

    def begin(self) -> None:
        """Have the first record of each partition acknowledged before there are others.

        A leader that knows nothing of a producer takes any sequence for its first (Kafka's does,
        too): if the first batch is refused, because the leader changes, and the second is not, then
        the first one counts as a duplicate when it comes again, and is lost.
        """
        for partition in range(PARTITIONS):
            self._write(partition)
        assert self._producer.flush(DEADLINE_S) == 0

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(str(error))

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.001)
            for _ in range(self._rng.randrange(self._burst_max)):
                if len(self._producer) >= IN_FLIGHT_RECORDS_MAX:
                    self._producer.poll(0.01)
                    break
                self._write(self._rng.randrange(PARTITIONS))

    def _write(self, partition: int) -> None:
        number = self.written[partition]
        self.written[partition] += 1
        where, name = Partition(self.topic, partition), b"%d" % number
        send = self.history.add(SentRecord(self.topic, where, name, delivery=self._delivery))

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{self.topic}-{partition} record {number}: {error}")
                return
            send.acknowledged(message.offset(), 0)
            self.acknowledged_count += 1

        value = name + b" " + bytes(VALUE_BYTES)
        self._producer.produce(self.topic, value, partition=partition, on_delivery=delivered)

    def await_more(self, count: int, deadline_s: float = DEADLINE_S) -> None:
        """Wait until so many more records have been acknowledged."""
        goal = self.acknowledged_count + count
        wait_until(lambda: self.acknowledged_count >= goal, deadline_s)

    def stop(self) -> None:
        """Write no more."""
        self._stopping.set()
        self._thread.join()

    def finish(self) -> None:
        """Stop writing and wait for every record to be acknowledged."""
        self.stop()
        assert self._producer.flush(30) == 0


def check_load(broker: BrokerProcess, load: Load) -> None:
    """See that the log has what the producer was told, and that no offset is left out."""
    with Wire(broker.bootstrap) as wire:
        for partition in range(PARTITIONS):
            batches = wire.stored_batches(load.topic, partition)
            stored = [(each.offset, each.value or b"") for batch in batches for each in batch]
            assert [offset for offset, _ in stored] == list(range(len(stored)))
            named = [(offset, value.split(b" ")[0]) for offset, value in stored]
            load.history.final[Partition(load.topic, partition)] = named
    assert check(load.history) == []
