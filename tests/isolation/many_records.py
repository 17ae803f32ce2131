"""Batches of few bytes that are very many records, and the requests that bring and fetch them."""

from __future__ import annotations

import random
import struct

import crc32c

from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.records.batch import HEADER_SIZE, Codec
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import compress
from dohle.records.legacy import encode_message
from dohle.records.varint import encode_varint
from tests.interop.wire import NOW_MS, frame_of

TOPIC = "attacked"
TINY_RECORDS = 2_670_000
MAX_MESSAGE_BYTES = 1_048_588


def batch_of(records: bytes, count: int, codec: Codec, timestamp: int = NOW_MS) -> bytes:
    builder = BatchBuilder(codec=codec)
    builder.append(timestamp, None, b"")
    built = builder.build()[:HEADER_SIZE] + bytearray(compress(codec, records))
    struct.pack_into(">i", built, 8, len(built) - 12)
    struct.pack_into(">i", built, 23, count - 1)
    struct.pack_into(">i", built, 57, count)
    struct.pack_into(">I", built, 17, crc32c.crc32c(memoryview(built)[21:]))
    return bytes(built)


def same_offsets(
    codec: Codec = Codec.ZSTD, timestamp: int = NOW_MS, count: int = TINY_RECORDS
) -> bytes:
    """Records without key and value, which all have offset delta 0."""
    return batch_of(b"\x0c\x00\x00\x00\x01\x01\x00" * count, count, codec, timestamp)


def honest(count: int, value_sizes: tuple[int, ...], codec: Codec = Codec.ZSTD) -> bytes:
    """As many records as fit into a megabyte, each as it should be."""
    rng = random.Random(1)
    pieces = []
    for index in range(count):
        value = b"a" * rng.choice(value_sizes)
        body = b"\x00\x00" + encode_varint(index) + b"\x01" + encode_varint(len(value)) + value
        pieces.append(encode_varint(len(body) + 1) + body + b"\x00")
    batch = batch_of(b"".join(pieces), count, codec)
    assert len(batch) <= MAX_MESSAGE_BYTES, "it would be refused at once"
    return batch


def old_messages(magic: int) -> bytes:
    """A set of messages without key and value, in few bytes."""
    one = encode_message(0, magic, 0, NOW_MS, None, None)
    value = compress(Codec.GZIP, one * 700_000, message_format_0=magic == 0)
    return encode_message(0, magic, Codec.GZIP, NOW_MS, None, value)


def produce_frame(records: bytes, version: int = 12) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=TopicName(TOPIC), partition_data=(data,))
    return frame_of(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,)), version)


def old_fetch_frame() -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=TopicName(TOPIC), partitions=(partition,))
    return frame_of(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=(topic,)), 3)
