"""Groups and transactions beside librdkafka's: each goes on where the other was."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer
from confluent_kafka import TopicPartition as RdTopicPartition

from dohle.client import (
    Admin,
    Beginning,
    Cluster,
    Consumer,
    ConsumerConfig,
    IsolationLevel,
    Producer,
    ProducerConfig,
)
from dohle.core.ids import TopicPartition
from tests.client.group.group_setup import GROUP, make_topic, numbers, poll_until, write
from tests.client.scripted_broker import within

TIMEOUT_S = 20


def rd_consumer(bootstrap: str, group: str, **settings: Any) -> RdConsumer:
    return RdConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 50,
            "partition.assignment.strategy": "range",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
            **settings,
        }
    )


def rd_read(consumer: RdConsumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(int(message.value() or b""))
    return found


def test_each_goes_on_where_the_other_committed(own_bootstrap: str, topic: str) -> None:
    def rd_reads(count: int) -> list[int]:
        consumer = rd_consumer(own_bootstrap, topic)
        try:
            consumer.subscribe([topic])
            found = rd_read(consumer, count)
            consumer.commit(asynchronous=False)
            return found
        finally:
            consumer.close()

    async def body() -> None:
        config = replace(GROUP, group_id=topic)
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 2)
            await write(cluster, partitions, range(10))
            assert sorted(await asyncio.to_thread(rd_reads, 10)) == list(range(10))
            await write(cluster, partitions, range(10, 20))
            async with Consumer(cluster, config) as consumer:
                await consumer.subscribe([topic])
                items = await poll_until(lambda items: len(items) == 10, consumer)
                assert sorted(numbers(items)) == list(range(10, 20))
            await write(cluster, partitions, range(20, 30))
            assert sorted(await asyncio.to_thread(rd_reads, 10)) == list(range(20, 30))
            offsets = (await Admin(cluster).list_group_offsets(topic)).ok()
            assert {each: place.offset for each, place in offsets.items()} == dict.fromkeys(
                partitions, 15
            )

    within(60, body())


def test_both_share_one_topic_whoever_leads(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        config = replace(GROUP, group_id=topic, partition_assignment_strategy=("range",))
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 2)
            async with Consumer(cluster, config) as ours:
                await ours.subscribe([topic])
                await poll_until(lambda _: len(ours.assignment) == 2, ours)
                theirs = rd_consumer(own_bootstrap, topic)
                try:
                    theirs.subscribe([topic])
                    joining = asyncio.create_task(
                        asyncio.to_thread(_poll_until_assigned, theirs, 1)
                    )
                    await poll_until(lambda _: joining.done() and len(ours.assignment) == 1, ours)
                    await write(cluster, partitions, range(20))
                    read = asyncio.create_task(asyncio.to_thread(rd_read, theirs, 10))
                    items = await poll_until(lambda items: len(items) == 10, ours)
                    assert sorted(numbers(items) + await read) == list(range(20))
                    described = (await Admin(cluster).describe_groups([topic])).one()
                    assert sorted(len(each.assignment) for each in described.members) == [1, 1]
                finally:
                    await asyncio.to_thread(theirs.close)
                await poll_until(lambda _: len(ours.assignment) == 2, ours)

    within(60, body())


def _poll_until_assigned(consumer: RdConsumer, count: int) -> None:
    while len(consumer.assignment()) != count:
        message = consumer.poll(0.1)
        assert message is None or message.error() is None


def test_librdkafka_reads_what_was_committed_and_nothing_else(
    own_bootstrap: str, topic: str
) -> None:
    def rd_reads() -> list[int]:
        consumer = rd_consumer(own_bootstrap, topic, **{"isolation.level": "read_committed"})
        try:
            consumer.assign([RdTopicPartition(topic, 0, 0)])
            return rd_read(consumer, 4)
        finally:
            consumer.close()

    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            async with Producer(cluster, ProducerConfig(transactional_id=topic)) as producer:
                await producer.init_transactions()
                for number in range(4):
                    producer.begin_transaction()
                    for each in (2 * number, 2 * number + 1):
                        await producer.send_soon(topic, b"%d" % each, partition=0)
                    await producer.flush()
                    if number % 2:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
            assert await asyncio.to_thread(rd_reads) == [0, 1, 4, 5]

    within(60, body())


def test_what_librdkafka_committed_is_read_and_nothing_else(own_bootstrap: str, topic: str) -> None:
    def rd_writes() -> None:
        producer = RdProducer(
            {"bootstrap.servers": own_bootstrap, "transactional.id": topic, "log_level": 0}
        )
        producer.init_transactions(TIMEOUT_S)
        for number in range(4):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number, partition=0)
            producer.flush(TIMEOUT_S)
            if number % 2:
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)

    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            await asyncio.to_thread(rd_writes)
            config = ConsumerConfig(
                isolation_level=IsolationLevel.READ_COMMITTED, fetch_max_wait_ms=20
            )
            async with Consumer(cluster, config) as consumer:
                await consumer.assign({partition: Beginning()}, stop_at_end=True)
                assert numbers([item async for item in consumer]) == [0, 2]

    within(60, body())


def test_a_consumer_group_of_the_newer_protocol_is_described(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 2)
            theirs = RdConsumer(
                {
                    "bootstrap.servers": own_bootstrap,
                    "group.id": topic,
                    "group.protocol": "consumer",
                    "auto.offset.reset": "earliest",
                    "log_level": 0,
                }
            )
            try:
                theirs.subscribe([topic])
                await asyncio.to_thread(_poll_until_assigned, theirs, 2)
                described = (await Admin(cluster).describe_groups([topic])).one()
                assert (described.type, described.assignor) == ("consumer", "uniform")
                (member,) = described.members
                assert sorted(member.assignment) == sorted(map(TopicPartition._make, partitions))
                assert member.subscribed_topics == (topic,)
                listed = await Admin(cluster).list_groups(types=["consumer"])
                assert topic in {each.group_id for each in listed}
            finally:
                await asyncio.to_thread(theirs.close)

    within(60, body())
