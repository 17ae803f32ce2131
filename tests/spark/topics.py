"""Writing and reading topics beside Spark."""

from __future__ import annotations

from dohle.client import Beginning, Cluster, Consumer, ConsumerConfig, IsolationLevel, Producer, run
from dohle.core.ids import TopicName, TopicPartition
from dohle.records.record import Record
from dohle.testing import Broker


def write(broker: Broker, topic: str, *values: bytes) -> None:
    async def work() -> None:
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster) as producer:
            for value in values:
                await producer.send_soon(topic, value, key=b"k", headers=[("own", b"1")])

    run(work())


def read(broker: Broker, topic: str) -> list[Record]:
    async def work() -> list[Record]:
        config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
        async with Cluster(broker.bootstrap) as cluster, Consumer(cluster, config) as consumer:
            partition = TopicPartition(TopicName(topic), 0)
            await consumer.assign({partition: Beginning()}, stop_at_end=True)
            return [found.record async for found in consumer]

    return run(work())
