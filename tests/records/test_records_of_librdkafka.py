"""librdkafka, through confluent-kafka: its batches are read here, and it reads batches built here.

librdkafka brings a mock broker that keeps batches as they come. It runs inside a producer of this
process; its producers write to it and a plain socket fetches their bytes, or the socket produces
bytes built here and its consumers read them.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dohle.records.batch import batches
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from dohle.records.control import build_txn_marker
from dohle.records.record import Record

NOW_MS = 1_700_000_000_000
TIMEOUT_S = 30
PRODUCE, FETCH = 0, 1


def samples() -> list[Record]:
    rng = random.Random(5)
    shapes: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (0, b"key", b"value", ()),
        (5, None, b"no key", (("trace", b"\x00\x01"), ("trace", b"again"), ("empty", b""))),
        (-7, b"tombstone", None, (("nothing", None),)),
        (60_000, None, None, (("größe-鍵", b"wert"),)),
        (2, b"large and random", rng.randbytes(1 << 20), ()),
        (3, b"large and regular", b"0123456789" * 100_000, (("h" * 300, b"v" * 5000),)),
        *((i, b"key %d" % i, b"value %d" % i, ()) for i in range(300)),
    ]
    return [
        Record(offset, NOW_MS + delta, key, value, headers)
        for offset, (delta, key, value, headers) in enumerate(shapes)
    ]


SAMPLES = samples()


class MockBroker(NamedTuple):
    """The mock broker's address, with the two requests these tests send to it."""

    owner: Producer
    host: str
    port: int

    def request(self, api_key: int, version: int, body: bytes) -> bytes:
        with socket.create_connection((self.host, self.port), TIMEOUT_S) as connection:
            header = struct.pack(">hhih", api_key, version, 1, -1)
            connection.sendall(struct.pack(">i", len(header + body)) + header + body)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                response = stream.read(size)
        assert response[:4] == struct.pack(">i", 1)
        return response[4:]

    def produce(self, topic: str, batch: bytes | bytearray) -> int:
        self.owner.list_topics(topic, TIMEOUT_S)  # creates it
        body = struct.pack(">hhi", -1, -1, 1000) + _one_topic(topic)
        body += struct.pack(">iii", 1, 0, len(batch)) + batch
        response = self.request(PRODUCE, 7, body)
        at = len(_one_topic(topic)) + 8
        error, base_offset = struct.unpack_from(">hq", response, at)
        assert error == 0
        return int(base_offset)

    def fetch(self, topic: str) -> bytes:
        """All batches of partition 0; the broker gives them one by one."""
        found = b""
        offset, high_watermark = 0, 1
        while offset < high_watermark:
            body = struct.pack(">iiiib", -1, 1000, 1, 1 << 27, 0) + _one_topic(topic)
            body += struct.pack(">iiqi", 1, 0, offset, 1 << 27)
            response = self.request(FETCH, 4, body)
            at = 4 + len(_one_topic(topic)) + 8
            error, high_watermark = struct.unpack_from(">hq", response, at)
            assert error == 0
            (aborted,) = struct.unpack_from(">i", response, at + 18)
            assert aborted <= 0
            (size,) = struct.unpack_from(">i", response, at + 22)
            found += response[at + 26 : at + 26 + size]
            offset = list(batches(found))[-1].next_offset
        return found


def _one_topic(topic: str) -> bytes:
    return struct.pack(">ih", 1, len(topic)) + topic.encode()


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (member,) = owner.list_topics(timeout=TIMEOUT_S).brokers.values()
    yield MockBroker(owner, member.host, member.port)
    owner.flush(TIMEOUT_S)


def librdkafka_writes(
    broker: MockBroker, topic: str, records: list[Record], **settings: str | int | bool
) -> bytes:
    producer = Producer(
        {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "linger.ms": 10_000,
            "batch.size": 10_000_000,
            "message.max.bytes": 10_000_000,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    failures: list[Any] = []
    for record in records:
        producer.produce(
            topic,
            partition=0,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []
    return broker.fetch(topic)


def librdkafka_reads(broker: MockBroker, topic: str, count: int) -> list[Record]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, TIMEOUT_S)
    finally:
        consumer.close()
    records = []
    for message in messages:
        assert message.error() is None
        offset: Any = message.offset()
        headers: Any = message.headers() or ()
        timestamp = message.timestamp()[1]
        records.append(Record(offset, timestamp, message.key(), message.value(), tuple(headers)))
    return records


@pytest.mark.parametrize("codec", Codec)
def test_what_librdkafka_writes_is_read(broker: MockBroker, codec: Codec) -> None:
    topic = f"theirs-{codec.name}"
    data = librdkafka_writes(broker, topic, SAMPLES, compression_type=codec.name.lower())
    records = []
    codecs = set()
    for batch in batches(data):
        batch.ensure_valid()
        records += list(batch)
        codecs.add(batch.compression)
    assert records == SAMPLES
    # It may send the first record alone, and leaves a batch as it is if that would not shrink.
    assert codec in codecs
    assert codecs <= {codec, Codec.NONE}


@pytest.mark.parametrize("codec", Codec)
def test_what_is_written_librdkafka_reads(broker: MockBroker, codec: Codec) -> None:
    topic = f"ours-{codec.name}"
    for part in (SAMPLES[:3], SAMPLES[3:]):
        builder = BatchBuilder(codec=codec)
        for record in part:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        assert broker.produce(topic, builder.build()) == part[0].offset
    assert librdkafka_reads(broker, topic, len(SAMPLES)) == SAMPLES


@pytest.mark.parametrize("idempotent", [True, False])
def test_without_compression_the_bytes_are_the_same(broker: MockBroker, idempotent: bool) -> None:
    topic = f"bytes-{idempotent}"
    theirs = librdkafka_writes(broker, topic, SAMPLES, enable_idempotence=idempotent)
    for batch in batches(theirs):
        builder = BatchBuilder(
            base_offset=batch.base_offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            partition_leader_epoch=batch.partition_leader_epoch,
        )
        for record in SAMPLES[batch.base_offset : batch.next_offset]:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        assert builder.build() == batch.buffer
    assert batch.next_offset == len(SAMPLES)


def test_an_idempotent_producer_is_seen_in_the_header(broker: MockBroker) -> None:
    data = librdkafka_writes(broker, "idempotent", SAMPLES[:3], enable_idempotence=True)
    found = list(batches(data))
    assert all(batch.producer_id >= 0 and batch.producer_epoch == 0 for batch in found)
    assert found[0].base_sequence == 0
    assert found[-1].last_sequence == 2


def test_librdkafka_passes_over_transaction_markers(broker: MockBroker) -> None:
    for sequence in (0, 1):
        builder = BatchBuilder(
            producer_id=9, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        builder.append(NOW_MS, b"k", b"value %d" % sequence)
        broker.produce("markers", builder.build())
        broker.produce("markers", build_txn_marker(True, 9, 0, 0, NOW_MS))
    found = librdkafka_reads(broker, "markers", 2)
    assert [(record.offset, record.value) for record in found] == [(0, b"value 0"), (2, b"value 1")]
