"""librdkafka, the C client, as a load: produce to a topic, then consume it.

The bytes and requests of a sample are those that the client counts on the wire.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.processes import Sample, Served

#: Records are sent by so many; so many are sent before it counts.
CHUNK_RECORDS = 10_000
_TIMEOUT_S = 60
_STATISTICS_MS = 100
_WORDS = ("offset", "topic", "broker", "leader", "epoch", "batch", "record", "segment", "index")


@dataclass(frozen=True, slots=True)
class Load:
    """What is produced and consumed."""

    record_size: int
    batch_size: int
    codec: str

    def __str__(self) -> str:
        record = "1 KiB" if self.record_size == 1024 else f"{self.record_size} B"
        batch = "1 MB" if self.batch_size == 1_000_000 else "16 KB"
        return f"{record} × {batch}, {self.codec}"


class _Counters:
    """What the client says it has sent and received."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._seen = 0
        self.sent = self.received = self.requests = 0

    def take(self, text: str) -> None:
        """Note one report of the client's."""
        brokers = json.loads(text)["brokers"].values()
        self._seen += 1
        self.sent = sum(broker["txbytes"] for broker in brokers)
        self.received = sum(broker["rxbytes"] for broker in brokers)
        self.requests = sum(broker["req"].get(self._request, 0) for broker in brokers)

    def wait(self, client: Any) -> None:
        """Return after a report that was made from now on."""
        first, deadline = self._seen, time.monotonic() + _TIMEOUT_S
        while self._seen < first + 2:
            if time.monotonic() > deadline:
                raise TimeoutError("librdkafka reports nothing")
            client.poll(0.02)


def _values(size: int) -> list[bytes]:
    """Make values that a codec can make a third to a half of."""
    rng = random.Random(size)
    found = []
    for number in range(1_000):
        text = f'{{"id": {number}, "key": "{rng.randbytes(size // 8).hex()}"'
        while len(text) < size:
            text += f', "{rng.choice(_WORDS)}": {rng.randrange(10_000)}'
        found.append(text[:size].encode())
    return found


def produce(
    server: Served, topic: str, load: Load, records: int, partitions: int = 1, **settings: object
) -> Sample:
    """Produce records, and tell what that has cost on the wire; dots in settings are ``_``.

    A chunk goes to each of the partitions in turn.
    """
    counters = _Counters("Produce")
    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "acks": "all",
            "batch.num.messages": 100_000,
            "batch.size": load.batch_size,
            "compression.type": load.codec,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 2_000_000,
            "queue.buffering.max.messages": 5_000_000,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": counters.take,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    values = _values(load.record_size)
    chunk = [{"value": values[number % len(values)]} for number in range(CHUNK_RECORDS)]
    producer.list_topics(topic, timeout=_TIMEOUT_S)

    def send(records: int) -> None:
        for number in range(records // CHUNK_RECORDS):
            partition = number % partitions
            if producer.produce_batch(topic, chunk, partition=partition) != CHUNK_RECORDS:
                raise RuntimeError("librdkafka has not taken all records")
        if producer.flush(_TIMEOUT_S):
            raise TimeoutError("not all records were acknowledged")

    # What a broker does only once, like compiling its codecs, is not to be counted.
    send(CHUNK_RECORDS * partitions)
    counters.wait(producer)
    sent, requests = counters.sent, counters.requests
    sample = server.measure(0, 1, lambda: send(records))
    counters.wait(producer)
    producer.close()
    return sample._replace(size=counters.sent - sent, requests=counters.requests - requests)


def _find_coordinator(consumer: Any, topic: str) -> None:
    """Have the group's coordinator make its topic and load it, which happens only once."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            consumer.committed([TopicPartition(topic, 0)], timeout=_TIMEOUT_S)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def consume(server: Served, topic: str, records: int, partitions: int = 1) -> Sample:
    """Consume what was produced, and tell what that has cost on the wire."""
    counters = _Counters("Fetch")
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "check.crcs": False,
            "enable.auto.commit": False,
            "group.id": "bench",
            "queued.max.messages.kbytes": 1_000_000,
            "queued.min.messages": 1_000_000,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": counters.take,
        }
    )
    _find_coordinator(consumer, topic)
    consumer.list_topics(topic, timeout=_TIMEOUT_S)

    def receive() -> None:
        consumer.assign([TopicPartition(topic, n, CHUNK_RECORDS) for n in range(partitions)])
        left, deadline = records, time.monotonic() + _TIMEOUT_S
        while left > 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} of {records} records have not come")
            found = consumer.consume(CHUNK_RECORDS, timeout=1)
            failed = [message.error() for message in found if message.error()]
            if failed:
                raise RuntimeError(f"consuming failed: {failed[0]}")
            left -= len(found)

    try:
        sample = server.measure(0, 1, receive)
        counters.wait(consumer)
    finally:
        consumer.close()
    return sample._replace(size=counters.received, requests=counters.requests)
