"""Batches that come with their records."""

from __future__ import annotations

import asyncio

import pytest

from dohle.client import Beginning, Cluster, Consumer, Producer, ProducerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.seams import SystemClock
from dohle.records.compression.codecs import Codec
from tests.client.group.group_setup import make_topic


async def _read(cluster: Cluster, partition: TopicPartition, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(cluster) as consumer, asyncio.timeout(30):
        await consumer.assign({partition: Beginning()})
        while len(found) < count:
            found += [each.record.value for each in await consumer.poll(timeout_ms=100)]
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batches_are_written_whole_and_in_order(
    own_bootstrap: str, topic: str, codec: Codec
) -> None:
    async def work() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            async with Producer(cluster, ProducerConfig(codec=codec)) as producer:
                alone = await producer.send_soon(topic, b"first")
                outcomes = []
                for number in range(20):
                    batch = producer.new_batch()
                    for record in range(3):
                        batch.append(SystemClock().now_ms(), None, b"%d.%d" % (number, record))
                    outcomes.append(await producer.send_batch(partition, batch))
                await producer.flush()
                assert (await alone).offset == 0
                assert [(await each).offset for each in outcomes] == list(range(1, 61, 3))
            expected = [b"%d.%d" % (number, each) for number in range(20) for each in range(3)]
            assert await _read(cluster, partition, 61) == [b"first", *expected]

    asyncio.run(work())


def test_a_batch_for_a_partition_that_does_not_exist_is_refused(
    own_bootstrap: str, topic: str
) -> None:
    async def work() -> None:
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            async with Producer(cluster) as producer:
                batch = producer.new_batch()
                batch.append(SystemClock().now_ms(), None, b"x")
                with pytest.raises(KafkaError) as error:
                    await producer.send_batch(TopicPartition(TopicName(topic), 7), batch)
                assert error.value.code is ErrorCode.INVALID_PARTITIONS

    asyncio.run(work())


def test_a_batch_waits_for_room(own_bootstrap: str, topic: str) -> None:
    async def work() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            config = ProducerConfig(buffer_memory=3000)
            async with Producer(cluster, config) as producer:
                outcomes = []
                for number in range(10):
                    batch = producer.new_batch()
                    batch.append(SystemClock().now_ms(), None, b"%d" % number * 2000)
                    outcomes.append(await producer.send_batch(partition, batch))
                await producer.flush()
                assert [(await each).offset for each in outcomes] == list(range(10))

    asyncio.run(work())
