"""Many topics and partitions, and many connections at once."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from dohle.core.ids import TopicName
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from dohle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dohle.testing import Broker
from tests.interop.clients import Confluent
from tests.interop.process import BrokerProcess
from tests.interop.wire import Wire, batch_of, frame_of

# The module re-exports its classes in a way that a type checker does not follow.
admin_api: Any = import_module("confluent_kafka.admin")

TOPICS = 200
PARTITIONS = 10
CONNECTIONS = 500
DEADLINE_S = 60
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("many")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_thousand_partitions_are_created_written_read_and_found_again(
    process: BrokerProcess,
) -> None:
    names = [f"many-{number}" for number in range(TOPICS)]
    admin = admin_api.AdminClient({"bootstrap.servers": process.bootstrap})
    created = admin.create_topics(
        [admin_api.NewTopic(name, PARTITIONS, 1) for name in names],
        operation_timeout=DEADLINE_S,
        request_timeout=DEADLINE_S,
    )
    for future in created.values():
        future.result(DEADLINE_S)

    assert write_one_to_each(process.bootstrap, names) == TOPICS * PARTITIONS
    check_contents(process.bootstrap, names)
    assert process.stop() == 0
    process.start()
    check_contents(process.bootstrap, names)
    assert process.failures == []


def write_one_to_each(bootstrap: str, names: list[str]) -> int:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    delivered = []

    def report(error: Any, message: Any) -> None:
        assert error is None
        delivered.append(message.offset())

    for name in names:
        for partition in range(PARTITIONS):
            value = f"{name}-{partition}"
            producer.produce(name, value, partition=partition, on_delivery=report)
    assert producer.flush(DEADLINE_S) == 0
    return len(delivered)


def check_contents(bootstrap: str, names: list[str]) -> None:
    """One consumer reads all partitions at once."""
    consumer = Confluent().consumer(bootstrap)
    try:
        consumer.assign(
            [
                confluent_kafka.TopicPartition(name, partition, 0)
                for name in names
                for partition in range(PARTITIONS)
            ]
        )
        found: set[str] = set()
        while len(found) < len(names) * PARTITIONS:
            messages = consumer.consume(1000, timeout=DEADLINE_S)
            assert messages, f"{len(found)} records came, and then no more"
            for message in messages:
                assert message.error() is None
                name = f"{message.topic()}-{message.partition()}"
                assert message.value().decode() == name
                found.add(name)
    finally:
        consumer.close()


async def ask_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    for frame in (
        frame_of(ApiVersionsRequest(client_software_name="w", client_software_version="1"), 3, 1),
        frame_of(MetadataRequest(topics=()), 12, number),
    ):
        writer.write(frame)
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        answer = await reader.readexactly(size)
    assert struct.unpack_from(">i", answer)[0] == number
    assert MetadataResponse.decode(12, answer, 5)[0].brokers


async def connect_and_ask(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    streams = await asyncio.gather(
        *(asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS))
    )
    try:
        for _ in range(3):
            await asyncio.gather(
                *(ask_on(reader, writer, number) for number, (reader, writer) in enumerate(streams))
            )
    finally:
        for _, writer in streams:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in streams))


def test_a_fetch_of_many_short_pieces_is_answered(broker: Broker) -> None:
    """More than an answer copies: what comes behind that is sent from files, if it is long enough.

    The last partitions have less than that.
    """
    topic, count, longer = TopicName("short-pieces"), 70, 35
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, partitions=count)
        for index in range(count):
            value = bytes(15_000 if index < longer else 850)
            assert wire.produce(topic, batch_of(value), partition=index).error_code == 0
        asked = tuple(
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MEGABYTE)
            for index in range(count)
        )
        request = FetchRequest(
            max_bytes=10 * MEGABYTE,
            min_bytes=1,
            topics=(FetchTopic(topic=topic, partitions=asked),),
        )
        found = wire.ask(request, FetchResponse, 12).responses[0].partitions
    sizes = [len(part.records or b"") for part in found]
    assert len(sizes) == count
    assert sum(sizes[:longer]) > 512 * 1024
    assert all(0 < size < 1024 for size in sizes[longer:])


def test_five_hundred_connections_are_served_at_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process:
        with Wire(process.bootstrap) as wire:
            wire.create_topic("t")
        memory_before = process.memory_bytes

        asyncio.run(asyncio.wait_for(connect_and_ask(process.bootstrap), DEADLINE_S))

        # A quarter of a megabyte for each of them would be 125.
        assert process.memory_bytes_max - memory_before < 100 * MEGABYTE
        assert process.failures == []
