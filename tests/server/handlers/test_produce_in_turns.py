"""Batches that take long to check: others are served meanwhile, and the order is kept."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import crc32c
import pytest

from dohle.core.ids import ProducerId, TopicName
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.records.batch import HEADER_SIZE, Codec
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import compress
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.wire import Wire, batch, create_topic, on_node, produce

TOPIC = "orders"
VERSION = 12


def many_records(count: int, *, codec: Codec = Codec.ZSTD) -> bytes:
    """A batch of records with keys in two sizes, so that each is followed singly."""
    builder = BatchBuilder(codec=codec)
    builder.append_all(0, [(b"k" * (1 + number % 2), b"v") for number in range(count)])
    return bytes(builder.build())


def all_with_offset_0(count: int) -> bytes:
    """A batch of records that all have the first one's offset."""
    records = b"\x0e\x00\x00\x00\x01\x02v\x00" * count
    built = bytearray(many_records(count)[:HEADER_SIZE] + compress(Codec.ZSTD, records))
    struct.pack_into(">i", built, 8, len(built) - 12)
    struct.pack_into(">I", built, 17, crc32c.crc32c(memoryview(built)[21:]))
    return bytes(built)


def request(*records: bytes, acks: int = -1) -> ProduceRequest:
    data = tuple(
        PartitionProduceData(index=index, records=one) for index, one in enumerate(records)
    )
    topic = TopicProduceData(name=TopicName(TOPIC), partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(topic,))


def slow_clock(node: Node) -> None:
    """Let every look at the clock find that the slice is over: work gives way at each step."""
    turns, ticks = node.broker.turns, [0.0]

    def time() -> float:
        ticks[0] += 0.01
        return ticks[0]

    turns.time = time


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_long_batch_is_appended_and_answered_before_the_requests_behind_it(
    tmp_path: Path, codec: Codec
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        slow_clock(node)
        long = many_records(5_000, codec=codec)
        # The first goes the slow path, and is learnt from: the others take the shortcut.
        for records in (batch(b"a"), long, batch(b"b"), long, batch(b"c")):
            await wire.post(request(records), VERSION)
        found = []
        for _ in range(5):
            answer = await wire.answer(0, VERSION)
            (one,) = answer.responses[0].partition_responses
            assert one.error_code == 0
            found.append(one.base_offset)
        assert found == [0, 1, 5_001, 5_002, 10_002]

    on_node(tmp_path, scenario)


def test_others_are_served_while_a_long_batch_is_checked(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        slow_clock(node)
        async with await Wire.connect(node) as other:
            await wire.post(request(many_records(120_000)), VERSION)
            long = asyncio.ensure_future(wire.answer(0, VERSION))
            for _ in range(5):
                assert (await produce(other, TOPIC, batch(b"v"))).error_code == 0
            assert not long.done()
        (one,) = (await long).responses[0].partition_responses
        assert one.error_code == 0
        assert one.base_offset >= 5

    on_node(tmp_path, scenario)


def test_wrong_offsets_are_counted_anew_in_turns(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=2)
        slow_clock(node)
        wrong = all_with_offset_0(4_000)
        answer = await wire.send(request(wrong, many_records(2_000)), VERSION)
        first, second = answer.responses[0].partition_responses
        assert (first.error_code, first.base_offset) == (0, 0)
        assert (second.error_code, second.base_offset) == (0, 0)
        partition = node.broker.partitions.get(TopicName(TOPIC), 0)
        assert partition is not None
        assert partition.log.log_end_offset == 4_000

    on_node(tmp_path, scenario)


def test_a_topic_that_goes_while_its_batch_is_checked_takes_no_records(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        slow_clock(node)
        partition = node.broker.partitions.get(TopicName(TOPIC), 0)
        assert partition is not None
        await wire.post(request(many_records(90_000)), VERSION)
        await until(lambda: len(node.broker.turns) > 0)
        partition.leave()
        answer = await wire.answer(0, VERSION)
        (one,) = answer.responses[0].partition_responses
        assert one.error_code == 6
        assert partition.log.log_end_offset == 0

    on_node(tmp_path, scenario)


def test_a_long_batch_of_an_idempotent_producer_is_appended_once(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        slow_clock(node)
        builder = BatchBuilder(
            codec=Codec.LZ4, producer_id=ProducerId(7), producer_epoch=0, base_sequence=0
        )
        builder.append_all(0, [(None, b"v" * (1 + number % 2)) for number in range(3_000)])
        records = bytes(builder.build())
        async with await Wire.connect(node) as other:
            await wire.post(request(records), VERSION)
            await other.post(request(records), VERSION)
            for one in (wire, other):
                answer = await one.answer(0, VERSION)
                (found,) = answer.responses[0].partition_responses
                assert (found.error_code, found.base_offset) == (0, 0)
        partition = node.broker.partitions.get(TopicName(TOPIC), 0)
        assert partition is not None
        assert partition.log.log_end_offset == 3_000

    on_node(tmp_path, scenario)


def test_a_client_that_leaves_while_its_batch_is_checked_has_it_appended(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        slow_clock(node)
        async with await Wire.connect(node) as other:
            await other.post(request(many_records(4_000)), VERSION)
        partition = node.broker.partitions.get(TopicName(TOPIC), 0)
        assert partition is not None
        await until(lambda: partition.log.high_watermark == 4_000)

    on_node(tmp_path, scenario)
