"""DeleteRecords, InitProducerId and DescribeProducers against a running node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, ProducerId, TopicName, TransactionalId
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce, running_node


async def _delete(
    wire: Wire, topic: str, offset: int, partition: int = 0, version: int = 2
) -> tuple[ErrorCode, int]:
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = (DeleteRecordsTopic(name=TopicName(topic), partitions=(asked,)),)
    response = await wire.send(DeleteRecordsRequest(topics=topics, timeout_ms=1_000), version)
    result = response.topics[0].partitions[0]
    assert (response.topics[0].name, result.partition_index) == (topic, partition)
    return ErrorCode(result.error_code), result.low_watermark


async def _earliest(wire: Wire, topic: str) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-2)
    topics = (ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),)
    response = await wire.send(ListOffsetsRequest(replica_id=BrokerId(-1), topics=topics))
    return int(response.topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        await produce(wire, "t", batch(*[b"x"] * 10))
        assert await _delete(wire, "t", 4, version=version) == (0, 4)
        assert await _earliest(wire, "t") == 4
        assert await _delete(wire, "t", 2, version=version) == (0, 4)
        assert await _delete(wire, "t", -1, version=version) == (0, 10)
        assert await _earliest(wire, "t") == 10

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "expected"),
    [
        ("t", 0, 6, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("never", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
        ("both", 0, 0, ErrorCode.NONE),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__transaction_state", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_records_that_must_stay_are_not_deleted(
    tmp_path: Path, topic: str, partition: int, offset: int, expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        await create_topic(wire, "compacted", configs={"cleanup.policy": "compact"})
        await create_topic(wire, "both", configs={"cleanup.policy": "compact,delete"})
        await create_topic(wire, "__consumer_offsets")
        await produce(wire, "t", batch(*[b"x"] * 5))
        code, low_watermark = await _delete(wire, topic, offset, partition)
        assert code is expected
        assert low_watermark == (0 if expected is ErrorCode.NONE else -1)

    on_node(tmp_path, scenario)


def test_a_moved_log_start_outlives_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            await produce(wire, "t", batch(*[b"x"] * 10))
            await _delete(wire, "t", 7)
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            assert await _earliest(wire, "t") == 7

    asyncio.run(run())


@pytest.mark.parametrize("version", range(6))
def test_every_idempotent_producer_gets_an_id_of_its_own(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answers = [await wire.send(request, version) for _ in range(3)]
        assert [(one.error_code, one.producer_epoch) for one in answers] == [(0, 0)] * 3
        ids = [one.producer_id for one in answers]
        assert len(set(ids)) == 3
        assert min(ids) >= 0

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "expected"),
    [
        (None, 5, 3, ErrorCode.NONE),
        (None, 5, -1, ErrorCode.INVALID_REQUEST),
        (None, -1, 3, ErrorCode.INVALID_REQUEST),
        ("", -1, -1, ErrorCode.INVALID_REQUEST),
        ("mine", -1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_id_is_given_to_who_asks_rightly(
    tmp_path: Path,
    transactional_id: str | None,
    producer_id: int,
    epoch: int,
    expected: ErrorCode,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = InitProducerIdRequest(
            transactional_id=None
            if transactional_id is None
            else TransactionalId(transactional_id),
            transaction_timeout_ms=1_000,
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch,
        )
        answer = await wire.send(request)
        assert ErrorCode(answer.error_code) is expected
        given = (answer.producer_id, answer.producer_epoch)
        if expected is ErrorCode.NONE:
            assert answer.producer_epoch == 0
        else:
            assert given == (-1, -1)

    on_node(tmp_path, scenario)


def test_producer_ids_are_not_given_again_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        given = []
        for _ in range(3):
            async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
                request = InitProducerIdRequest(transactional_id=None)
                given += [(await wire.send(request)).producer_id for _ in range(2)]
        assert len(set(given)) == 6

    asyncio.run(run())


def test_producer_ids_go_on_beyond_a_block(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = InitProducerIdRequest(transactional_id=None)
        for _ in range(1_500):
            await wire.post(request, 5)
        given = {(await wire.answer(request.API_KEY, 5)).producer_id for _ in range(1_500)}
        assert len(given) == 1_500

    on_node(tmp_path, scenario)


def test_producers_of_a_partition_are_described(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", partitions=2)
        producer_id = (await wire.send(InitProducerIdRequest(transactional_id=None))).producer_id
        for sequence in (0, 2):
            records = batch(
                b"a",
                b"b",
                timestamp=5_000 + sequence,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            assert (await produce(wire, "t", records)).error_code == 0
        request = DescribeProducersRequest(
            topics=(
                TopicRequest(name=TopicName("t"), partition_indexes=(0, 1, 2)),
                TopicRequest(name=TopicName("never"), partition_indexes=(0,)),
                TopicRequest(name=TopicName("a/b"), partition_indexes=(0,)),
            )
        )
        there, never, wrong = (await wire.send(request)).topics
        written, empty, missing = there.partitions
        assert [written.partition_index, empty.partition_index] == [0, 1]
        (state,) = written.active_producers
        assert (state.producer_id, state.producer_epoch) == (producer_id, 0)
        assert (state.last_sequence, state.last_timestamp) == (3, 5_002)
        assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
        assert (empty.error_code, empty.active_producers) == (0, ())
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert never.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert wrong.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert wrong.partitions[0].error_message

    on_node(tmp_path, scenario)
