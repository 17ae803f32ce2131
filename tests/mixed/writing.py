"""Small writes and reads of one partition."""

from __future__ import annotations

from typing import Any

import confluent_kafka

from dohle.client import Beginning, Consumer, ConsumerConfig, run
from dohle.client import Cluster as Client
from dohle.core.ids import TopicName, TopicPartition
from tests.mixed.nodes import DEADLINE_S


def write(bootstrap: str, topic: TopicName, values: list[bytes], acks: int) -> None:
    """Write to the first partition with librdkafka, and wait for the answers."""
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    config = {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, "log_level": 0}
    producer = confluent_kafka.Producer(config)
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []


def read(bootstrap: str, topic: TopicName, rack: str = "") -> list[bytes]:
    """Read the first partition to its end, from a replica in a rack if one is told."""

    async def work() -> list[bytes]:
        config = ConsumerConfig(client_rack=rack)
        async with Client(bootstrap) as client, Consumer(client, config) as consumer:
            await consumer.assign({TopicPartition(topic, 0): Beginning()}, stop_at_end=True)
            return [found.record.value or b"" async for found in consumer]

    return run(work())
