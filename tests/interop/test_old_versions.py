"""Versions from before the record batch: formats 0 and 1 in, and out again for those who ask so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.fetch import FetchResponse
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from dohle.protocol.messages.produce import ProduceResponse
from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from dohle.records.record import Record
from dohle.testing import Broker
from tests.interop.clients import CLIENTS, Client
from tests.interop.conftest import NewTopic
from tests.interop.waiting import wait_until
from tests.interop.wire import NOW_MS as T0
from tests.interop.wire import Wire, batch_of, fetch_request, produce_request
from tests.records.message_sets import Message, build_message_set

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
MESSAGES = [
    Message(T0 + number, None if number % 3 else b"key", b"value %d " % number * 5)
    for number in range(50)
] + [Message(T0 + 50, b"tombstone", None)]

Read = Callable[[bytes], list[Record]]


def dohle_reads(data: bytes) -> list[Record]:
    return [record for batch in batches(data) for record in batch]


def others_read(records: Any) -> list[Record]:
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [
            Record(
                record.offset,
                -1 if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
            )
            for record in batch
        ]
    return found


def aiokafka_reads(data: bytes) -> list[Record]:
    return others_read(AiokafkaRecords(data))


#: With the codecs each was installed with.
READERS: dict[str, tuple[Read, list[Codec]]] = {
    "dohle": (dohle_reads, OLD_CODECS),
    "kafka-python": (lambda data: others_read(KafkaPythonRecords(data)), OLD_CODECS),
    "aiokafka": (aiokafka_reads, OLD_CODECS),
}


@pytest.fixture
def wire(broker: Broker) -> Any:
    with Wire(broker.bootstrap) as connected:
        yield connected


@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 0), (2, 1)])
def test_old_messages_are_stored_as_batches_and_read_by_new_clients(
    broker: Broker, wire: Wire, topic: str, version: int, magic: int, codec: Codec
) -> None:
    sent = build_message_set(magic, MESSAGES, codec=codec)

    reply = wire.produce(topic, sent, version=version)

    assert (reply.error_code, reply.base_offset) == (0, 0)
    assert all(batch.magic == 2 for batch in wire.stored_batches(topic))
    for client in CLIENTS:
        if codec.name.lower() in client.codecs:
            check_contents(broker, client, topic, timed=magic == 1)


def check_contents(broker: Broker, client: Client, topic: str, *, timed: bool) -> None:
    received = client.read(broker.bootstrap, topic, len(MESSAGES))
    assert [each.offset for each in received] == list(range(len(MESSAGES)))
    assert [(each.sample.key, each.sample.value) for each in received] == [
        (message.key, message.value) for message in MESSAGES
    ]
    if timed:
        assert [each.sample.timestamp_ms for each in received] == [
            message.timestamp for message in MESSAGES
        ]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name.lower())
def test_old_fetches_get_old_messages(wire: Wire, topic: str, version: int, codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    for message in MESSAGES:
        builder.append(message.timestamp, message.key, message.value, (("gone", b"later"),))
    batch = bytes(builder.build())
    wire.produce(topic, batch)
    wire.produce(topic, batch)

    data = wire.fetch(topic, version=version)

    assert data.error_code == 0
    assert data.high_watermark == 2 * len(MESSAGES)
    assert data.records
    magic = 0 if version < 2 else 1
    assert {each.magic for each in batches(data.records)} == {magic}
    expected = [
        Record(
            offset,
            message.timestamp if magic else -1,
            message.key,
            message.value,
        )
        for offset, message in enumerate(MESSAGES * 2)
    ]
    for read, codecs in READERS.values():
        # Format 0 had a broken checksum in lz4's frames; aiokafka does not read them.
        is_unread = read is aiokafka_reads and magic == 0 and codec is Codec.LZ4
        if codec in codecs and not is_unread:
            assert read(bytes(data.records)) == expected


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_old_fetch_from_the_middle_of_a_batch_loses_nothing(
    wire: Wire, topic: str, version: int
) -> None:
    wire.produce(topic, batch_of(*(b"%d" % n for n in range(10))))

    data = wire.fetch(topic, 6, version=version)

    assert data.records
    found = {record.offset: record.value for record in dohle_reads(bytes(data.records))}
    assert {offset: found[offset] for offset in range(6, 10)} == {
        offset: b"%d" % offset for offset in range(6, 10)
    }


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 9])
def test_zstd_is_not_given_to_those_who_came_before_it(
    wire: Wire, new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(compression_type="zstd")
    wire.produce(topic, batch_of(b"value" * 100))

    data = wire.fetch(topic, version=version)

    assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert not data.records


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_zstd_cannot_be_put_into_old_messages(wire: Wire, topic: str, version: int) -> None:
    wire.produce(topic, batch_of(b"value" * 100, codec=Codec.ZSTD))

    data = wire.fetch(topic, version=version)

    assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_zstd_is_not_taken_from_those_who_came_before_it(
    wire: Wire, topic: str, version: int
) -> None:
    reply = wire.produce(topic, batch_of(b"value", codec=Codec.ZSTD), version=version)

    assert reply.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata_tells_the_same(
    broker: Broker, wire: Wire, new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(partitions=3)
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=TopicName(topic)),))

    reply = wire.ask(asked, MetadataResponse, version)

    (node,) = reply.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert described(reply.topics[0]) == (topic, 0, [0, 1, 2], {node.node_id})
    if version >= 1:
        assert reply.controller_id == node.node_id
    if version >= 2:
        assert reply.cluster_id == broker.node.cluster_id
    if version >= 10:
        assert reply.topics[0].topic_id != bytes(16)


def described(topic: MetadataResponseTopic) -> tuple[str | None, int, list[int], set[int]]:
    return (
        topic.name,
        topic.error_code,
        sorted(partition.partition_index for partition in topic.partitions),
        {partition.leader_id for partition in topic.partitions},
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_metadata_requests_get_all_topics_and_create_missing_ones(
    wire: Wire, topic: str, version: int
) -> None:
    missing = TopicName(f"created-by-metadata-{version}")
    # No topics at all is "all" in version 0, and null is from version 1 on.
    everything = wire.ask(
        MetadataRequest(topics=() if version == 0 else None), MetadataResponse, version
    )
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=missing),))

    def see() -> tuple[str | None, int, list[int]]:
        return described(wire.ask(asked, MetadataResponse, version).topics[0])[:3]

    assert topic in {each.name for each in everything.topics}
    assert see() == (missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    wait_until(lambda: see() == (missing, 0, [0]))


def list_offsets(
    wire: Wire, topic: str, timestamp: int, version: int, max_num_offsets: int = 1
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, max_num_offsets=max_num_offsets
    )
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),),
    )
    return wire.ask(request, ListOffsetsResponse, version).topics[0].partitions[0]


def test_the_oldest_list_offsets_gives_starts_of_segments(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(segment_bytes=str(1 << 20))
    for _ in range(5):
        wire.produce(topic, batch_of(bytes(600_000)))

    def starts(timestamp: int, count: int) -> tuple[int, ...]:
        reply = list_offsets(wire, topic, timestamp, 0, count)
        assert reply.error_code == 0
        return reply.old_style_offsets

    assert starts(-1, 1) == (5,)
    assert starts(-2, 1) == (0,)
    assert starts(-1, 100) == (5, 4, 3, 2, 1, 0)
    assert starts(-1, 3) == (5, 4, 3)
    assert starts(0, 10) == ()


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_list_offsets_finds_the_same(wire: Wire, topic: str, version: int) -> None:
    wire.produce(topic, batch_of(b"a", b"b", b"c"))

    def find(timestamp: int) -> tuple[int, int, int]:
        reply = list_offsets(wire, topic, timestamp, version)
        return reply.error_code, reply.offset, reply.timestamp

    assert find(-1) == (0, 3, -1)
    assert find(-2) == (0, 0, -1)
    assert find(T0 + 1) == (0, 1, T0 + 1)
    assert find(T0 + 9) == (0, -1, -1)
    largest = find(-3)
    assert largest == ((0, 2, T0 + 2) if version >= 7 else (ErrorCode.UNSUPPORTED_VERSION, -1, -1))


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_produce_and_fetch_keeps_a_record(
    wire: Wire, topic: str, version: int
) -> None:
    if version >= 13:
        described = wire.ask(
            MetadataRequest(topics=(MetadataRequestTopic(name=TopicName(topic)),)),
            MetadataResponse,
            12,
        )
        topic_id = described.topics[0].topic_id
        request = produce_request(topic, batch_of(b"value"))
        (data,) = request.topic_data
        request = request.replace(topic_data=(data.replace(topic_id=topic_id),))
        answered = wire.ask(request, ProduceResponse, version)
        reply = answered.responses[0].partition_responses[0]
    else:
        magic = {0: 0, 1: 0, 2: 1}.get(version, 2)
        records = (
            batch_of(b"value")
            if magic == 2
            else build_message_set(magic, [Message(T0, None, b"value")])
        )
        reply = wire.produce(topic, records, version=version)

    assert (reply.error_code, reply.base_offset) == (0, 0)
    for fetch_version in range(13):
        found = wire.fetch(topic, version=fetch_version)
        assert found.records is not None
        assert [record.value for record in dohle_reads(bytes(found.records))] == [b"value"]


def test_an_old_fetch_is_cut_where_its_limit_is(wire: Wire, topic: str) -> None:
    """Up to version 2 a limit is kept even if not one whole message fits (before KIP-74)."""
    wire.produce(topic, batch_of(bytes(50_000)))

    reply = wire.ask(fetch_request(topic, bytes_max=1000), FetchResponse, 2)
    found = reply.responses[0].partitions[0]
    assert found.error_code == 0
    assert found.records is not None
    assert len(found.records) <= 1000
    reply = wire.ask(fetch_request(topic, bytes_max=1000), FetchResponse, 3)
    assert reply.responses[0].partitions[0].records
