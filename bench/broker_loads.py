"""Throughput through librdkafka, the C client: produce to a new topic, then consume it.

MB/s count the records' values as the application sees them; the broker's processor time is per GB
on the wire, which is less when it is compressed. Requests are those that the client counts.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from itertools import product
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.processes import Process, Sample, broker, ceiling, middle
from bench.raw_client import (
    build_batch,
    ceiling_sendfile,
    ceiling_write,
    connect,
    produce_frame,
    repeat,
)
from bench.report import Row
from dohle.core.ids import TopicName

_CHUNK_RECORDS = 10_000
_TIMEOUT_S = 60
_STATISTICS_MS = 100
_CEILING_BYTES = 100_000_000
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


LOADS = [Load(*case) for case in product((100, 1024), (16_384, 1_000_000), ("none", "lz4"))]


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


def _produce(server: Process, topic: str, load: Load, records: int) -> Sample:
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
        }
    )
    values = _values(load.record_size)
    chunk = [{"value": values[number % len(values)]} for number in range(_CHUNK_RECORDS)]
    producer.list_topics(topic, timeout=_TIMEOUT_S)

    def send(records: int) -> None:
        for _ in range(records // _CHUNK_RECORDS):
            if producer.produce_batch(topic, chunk, partition=0) != _CHUNK_RECORDS:
                raise RuntimeError("librdkafka has not taken all records")
        if producer.flush(_TIMEOUT_S):
            raise TimeoutError("not all records were acknowledged")

    # What a broker does only once, like compiling its codecs, is not to be counted.
    send(_CHUNK_RECORDS)
    counters.wait(producer)
    sent, requests = counters.sent, counters.requests
    sample = server.measure(0, 1, lambda: send(records))
    counters.wait(producer)
    producer.close()
    return sample._replace(size=counters.sent - sent, requests=counters.requests - requests)


def _consume(server: Process, topic: str, records: int) -> Sample:
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
    # The first who asks for a group's coordinator has its topic created, which happens only once.
    consumer.committed([TopicPartition(topic, 0)], timeout=_TIMEOUT_S)
    consumer.list_topics(topic, timeout=_TIMEOUT_S)

    def receive() -> None:
        consumer.assign([TopicPartition(topic, 0, _CHUNK_RECORDS)])
        left, deadline = records, time.monotonic() + _TIMEOUT_S
        while left > 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} of {records} records have not come")
            found = consumer.consume(_CHUNK_RECORDS, timeout=1)
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


def _ceilings(bare: Process) -> dict[str, Sample]:
    request = produce_frame(TopicName("ceiling"), build_batch(1_000, 1_000))
    load = repeat(request, _CEILING_BYTES // len(request))
    size, count, piece = load.size, load.requests, len(request)
    with connect(bare.address) as sock:
        return {
            "recv → write": bare.measure(size, count, lambda: ceiling_write(sock, load, piece)),
            "sendfile": bare.measure(size, count, lambda: ceiling_sendfile(sock, size, piece)),
        }


def rows(quick: bool) -> list[Row]:
    """Measure every load with brokers of its own, whose data goes with them: memory is reused."""
    rounds = 1 if quick else 3
    found: dict[str, list[Sample]] = {}
    payload: dict[str, int] = {}
    with ceiling() as bare:
        for load in LOADS * rounds:
            size = (10_000_000 if quick else 40_000_000) * (1 + load.record_size // 256)
            records = size // load.record_size // _CHUNK_RECORDS * _CHUNK_RECORDS
            payload[str(load)] = records * load.record_size
            with broker() as server:
                produced = _produce(server, "load", load, records)
                found.setdefault(f"produce {load}", []).append(produced)
                consumed = _consume(server, "load", records)
                found.setdefault(f"consume {load}", []).append(consumed)
            for name, sample in _ceilings(bare).items():
                found.setdefault(name, []).append(sample)
    medians = {name: middle(samples) for name, samples in found.items()}
    return [
        Row(
            action,
            f"librdkafka, {load} ({payload[str(load)] / sample.seconds / 1e6:,.0f} MB/s,"
            f" {sample.cpu_us_per_request:,.0f} µs/request)",
            "CPU s/GB",
            sample.cpu_s_per_gb,
            bare_name,
            medians[bare_name].cpu_s_per_gb,
        )
        for action, bare_name in (("produce", "recv → write"), ("consume", "sendfile"))
        for load in LOADS
        for sample in (medians[f"{action} {load}"],)
    ]
