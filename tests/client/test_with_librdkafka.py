"""Producer and consumer beside librdkafka's, on brokers that are not ours: each reads the other."""

from __future__ import annotations

import random
from typing import Any

import pytest
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer
from confluent_kafka import TopicPartition as RdTopicPartition

from dohle.client import (
    Admin,
    At,
    Beginning,
    Cluster,
    Consumer,
    End,
    Producer,
    ProducerConfig,
    run,
)
from dohle.client.producer.partitioner import partition_of_key
from dohle.core.ids import TopicName, TopicPartition
from dohle.records.compression.codecs import Codec
from dohle.records.record import Header, Record

NOW_MS = 1_700_000_000_000
TIMEOUT_S = 30


def samples() -> list[Record]:
    rng = random.Random(5)
    shapes: list[tuple[bytes | None, bytes | None, tuple[Header, ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", (("trace", b"\x00\x01"), ("trace", b"again"), ("empty", b""))),
        (b"tombstone", None, (("nothing", None),)),
        (b"large", rng.randbytes(900_000), (("größe-鍵", b"wert"),)),
        *((b"key %d" % n, b"value %d" % n * 5, ()) for n in range(500)),
    ]
    return [
        Record(offset, NOW_MS + offset, key, value, headers)
        for offset, (key, value, headers) in enumerate(shapes)
    ]


SAMPLES = samples()


def as_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


def read_with_librdkafka(bootstrap: str, topic: str, count: int) -> list[Record]:
    consumer = RdConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "check.crcs": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([RdTopicPartition(topic, 0, 0)])
        records: list[Record] = []
        while len(records) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None
            records.append(as_record(message))
        return records
    finally:
        consumer.close()


async def write(bootstrap: str, topic: str, config: ProducerConfig) -> list[int]:
    async with Cluster(bootstrap) as cluster, Producer(cluster, config) as producer:
        futures = [
            await producer.send_soon(
                topic,
                each.value,
                key=each.key,
                partition=0,
                timestamp=each.timestamp,
                headers=each.headers,
            )
            for each in SAMPLES
        ]
        await producer.flush()
        return [future.result().offset for future in futures]


async def read(bootstrap: str, topic: str) -> list[Record]:
    async with Cluster(bootstrap) as cluster, Consumer(cluster) as consumer:
        partition = TopicPartition(TopicName(topic), 0)
        await consumer.assign({partition: Beginning()}, stop_at_end=True)
        return [item.record async for item in consumer]


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_reads_what_is_written(bootstrap: str, topic: str, codec: Codec) -> None:
    config = ProducerConfig(codec=codec, batch_size=5000)
    assert run(write(bootstrap, topic, config)) == [each.offset for each in SAMPLES]
    assert read_with_librdkafka(bootstrap, topic, len(SAMPLES)) == SAMPLES


# Not with acks 0: the mock brokers answer it, against the protocol.
@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_written_without_idempotence_is_read_again(
    bootstrap: str, topic: str, acks: int
) -> None:
    config = ProducerConfig(acks=acks, enable_idempotence=False, linger_ms=0)
    offsets = run(write(bootstrap, topic, config))
    assert offsets == [each.offset for each in SAMPLES]
    assert read_with_librdkafka(bootstrap, topic, len(SAMPLES)) == SAMPLES
    assert run(read(bootstrap, topic)) == SAMPLES


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_librdkafka_writes_is_read(
    bootstrap: str, topic: str, codec: Codec, idempotent: bool
) -> None:
    producer = RdProducer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec.name.lower(),
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    for each in SAMPLES:
        producer.produce(
            topic,
            each.value,
            each.key,
            partition=0,
            timestamp=each.timestamp,
            headers=list(each.headers),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert run(read(bootstrap, topic)) == SAMPLES


def test_keys_go_to_the_partitions_that_librdkafka_chooses_like_java(
    bootstrap: str, topic: str
) -> None:
    producer = RdProducer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2", "linger.ms": 5, "log_level": 0}
    )
    partitions = len(producer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
    chosen: dict[bytes, int] = {}

    def delivered(error: object, message: Any) -> None:
        assert error is None
        chosen[message.key()] = message.partition()

    keys = [random.Random(n).randbytes(n % 40) for n in range(1, 300)]
    for key in keys:
        producer.produce(topic, b"", key, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    assert chosen == {key: partition_of_key(key, partitions) for key in keys}


def test_records_spread_over_all_partitions_and_come_back(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            async with Producer(cluster, ProducerConfig(batch_size=1000)) as producer:
                for number in range(2000):
                    await producer.send_soon(topic, b"%d" % number)
            name = TopicName(topic)
            partitions = [
                TopicPartition(name, number) for number in (await cluster.topic(name)).partitions
            ]
            async with Consumer(cluster) as consumer:
                await consumer.assign(dict.fromkeys(partitions, Beginning()), stop_at_end=True)
                seen: dict[int, list[int]] = {}
                async for item in consumer:
                    assert item.record.value is not None
                    seen.setdefault(item.partition, []).append(int(item.record.value))
            assert sorted(number for some in seen.values() for number in some) == list(range(2000))
            assert all(some == sorted(some) for some in seen.values())
            assert set(seen) == {partition.partition for partition in partitions}

    run(body())


def test_offsets_are_listed_and_read_from(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            async with Producer(cluster) as producer:
                for number in range(10):
                    await producer.send_soon(topic, b"%d" % number, partition=0)
            partition = TopicPartition(TopicName(topic), 0)
            admin = Admin(cluster)
            assert (await admin.list_offsets({partition: Beginning()})).one().offset == 0
            assert (await admin.list_offsets({partition: End()})).one().offset == 10
            async with Consumer(cluster) as consumer:
                await consumer.assign({partition: At(7)}, stop_at_end=True)
                assert [item.record.value async for item in consumer] == [b"7", b"8", b"9"]

    run(body())


def test_topics_are_described(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            name = TopicName(topic)
            await cluster.retry(
                "topic", lambda: cluster.topic(name, allow_auto_topic_creation=True)
            )
            admin = Admin(cluster)
            assert topic in await admin.list_topics()
            described = (await admin.describe_topics([topic])).one()
            brokers = {broker.node_id for broker in await cluster.brokers()}
            assert all(each.leader_id in brokers for each in described.partitions.values())
            description = await admin.describe_cluster()
            assert {broker.node_id for broker in description.brokers} == brokers

    run(body())
