"""Commit as an event: who waits for records to be committed is told when they are, or are not.

There is one node. A second replica in the ISR is a client that fetches as broker 2 would; the
partition's place in the cluster is given to it by hand.
"""

from __future__ import annotations

import asyncio
from asyncio import iscoroutine
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, ProducerId, TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.framing import encode_request
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from dohle.records.batch import batches
from dohle.server.handlers.produce import handle_produce
from dohle.server.net.handler import RequestContext
from dohle.server.node import Node
from dohle.server.partitions.commits import gathered
from dohle.server.partitions.fetch_reader import FetchReader
from dohle.server.partitions.partitions import Partition
from dohle.server.partitions.topic_settings import TopicSettings
from tests.server.faults import FaultyFileSystem, until
from tests.server.net.connected import turns
from tests.server.partitions.fetching import fetch, two_directories
from tests.server.partitions.second_replica import FOLLOWER, give_follower, partition_of
from tests.server.wire import (
    ANSWER_TIMEOUT_S,
    Wire,
    batch,
    create_topic,
    produce_request,
    running_node,
)

PRODUCE_VERSION, FETCH_VERSION = 9, 12
LONG_MS = 60_000


@asynccontextmanager
async def replicated(path: Path) -> AsyncIterator[tuple[Node, Wire, Wire]]:
    """Run a node with a topic of two replicas, a producer, and who fetches as the follower."""
    async with (
        running_node(path) as node,
        await Wire.connect(node) as producer,
        await Wire.connect(node) as follower,
    ):
        await create_topic(producer, "t")
        give_follower(node)
        yield node, producer, follower


async def follow(
    wire: Wire, offset: int, *, log_start_offset: int = 0, last_epoch: int = -1
) -> PartitionData:
    """Fetch as the follower does that has everything below an offset."""
    asked = FetchPartition(
        partition=0,
        fetch_offset=offset,
        log_start_offset=log_start_offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        replica_id=FOLLOWER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=(FetchTopic(topic=TopicName("t"), partitions=(asked,)),),
    )
    answer = await wire.send(request, FETCH_VERSION)
    found: PartitionData = answer.responses[0].partitions[0]
    return found


async def post(wire: Wire, *values: bytes, timeout_ms: int = LONG_MS, acks: int = -1) -> None:
    for value in values:
        request = produce_request("t", batch(value)).replace(timeout_ms=timeout_ms, acks=acks)
        await wire.post(request, PRODUCE_VERSION)


async def produced(wire: Wire) -> PartitionProduceResponse:
    answer = await wire.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
    found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


async def appended(node: Node, count: int) -> None:
    await until(lambda: partition_of(node).log.log_end_offset == count)
    await turns(5)


def test_records_are_answered_when_the_follower_has_them_and_not_before(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, follower):
            # The first takes the slow path, the others the shortcut.
            for number in range(4):
                await post(producer, b"%d" % number)
                await appended(node, number + 1)
            partition = partition_of(node)
            assert (partition.log.high_watermark, partition.replication.waiting_count) == (0, 4)
            assert (await follow(follower, 0)).high_watermark == 0
            # Rule G5: the answer has the high watermark from before.
            assert (await follow(follower, 3)).high_watermark == 0
            assert [(await produced(producer)).base_offset for _ in range(3)] == [0, 1, 2]
            assert (partition.log.high_watermark, partition.replication.waiting_count) == (3, 1)
            assert (await follow(follower, 4)).high_watermark == 3
            last = await produced(producer)
            assert (last.base_offset, last.error_code) == (3, ErrorCode.NONE)

    asyncio.run(run())


def test_a_minimum_that_rises_while_a_producer_waits_is_kept(tmp_path: Path) -> None:
    """G20, G22: what waits is not committed by fewer until its time is up; what comes then gets 19.

    Error 20 is for an ISR that shrinks between a commit and the look at who waits for it. Here both
    are one step, and below the minimum nothing is committed, so that it does not come up; how it
    would be answered is shown in ``tests/server/shortcuts/test_same_as_slow_path.py``.
    """

    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, follower):
            partition = partition_of(node)
            image = partition.image
            more = replace(
                image,
                replicas=(*image.replicas, BrokerId(3)),
                partition_epoch=image.partition_epoch + 1,
            )
            partition.follow(more)
            await post(producer, b"waits", timeout_ms=300)
            await appended(node, 1)
            require(node, partition, 3)
            await follow(follower, 0)
            await follow(follower, 1)
            assert (await produced(producer)).error_code == ErrorCode.REQUEST_TIMED_OUT
            assert partition.log.high_watermark == 0
            await post(producer, b"refused")
            assert (await produced(producer)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert partition.log.log_end_offset == 1
            require(node, partition, 2)
            assert partition.log.high_watermark == 1

    asyncio.run(run())


def require(node: Node, partition: Partition, count: int) -> None:
    """Set min.insync.replicas of a topic, as a change of its configs does."""
    values = node.broker.topic_values(partition.key.topic)
    partition.configure(TopicSettings.of(partition.key.topic, values)._replace(min_isr=count))


def test_a_follower_whose_log_diverges_is_told_so_and_not_counted(tmp_path: Path) -> None:
    """G1: where it says it is, it has other records; it is taken at its word once they are cut."""

    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, follower):
            await post(producer, b"waits")
            await appended(node, 1)
            partition = partition_of(node)
            for _ in range(2):
                answer = await follow(follower, 5, last_epoch=partition.leader_epoch)
                told = answer.diverging_epoch
                assert (told.epoch, told.end_offset) == (partition.leader_epoch, 1)
                assert not answer.records
            assert (partition.log.high_watermark, partition.replication.waiting_count) == (0, 1)
            await follow(follower, 1, last_epoch=partition.leader_epoch)
            assert (await produced(producer)).error_code == ErrorCode.NONE
            assert partition.log.high_watermark == 1

    asyncio.run(run())


async def post_to_both(wire: Wire, value: bytes, timeout_ms: int = LONG_MS) -> None:
    """Append to both partitions of topic two by one request."""
    data = tuple(PartitionProduceData(index=n, records=batch(value)) for n in range(2))
    topic = TopicProduceData(name=TopicName("two"), partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=(topic,))
    await wire.post(request, PRODUCE_VERSION)


async def produced_to_both(wire: Wire) -> list[tuple[int, int]]:
    (topic,) = (await wire.answer(ApiKey.PRODUCE, PRODUCE_VERSION)).responses
    return [(each.error_code, each.base_offset) for each in topic.partition_responses]


async def appended_to_both(both: list[Partition], count: int) -> None:
    await until(lambda: both[1].log.log_end_offset == count)
    await turns(5)


@asynccontextmanager
async def two_partitions(path: Path) -> AsyncIterator[tuple[Node, Wire, list[Partition]]]:
    """Run a node with a topic of two partitions of two replicas, and a producer."""
    async with running_node(path) as node, await Wire.connect(node) as producer:
        await create_topic(producer, "two", 2)
        yield node, producer, [give_follower(node, "two", index) for index in range(2)]


def test_several_partitions_are_answered_when_the_follower_has_the_last(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_partitions(tmp_path) as (node, producer, both):
            # The first takes the slow path, the others the shortcut.
            for number in range(5):
                await post_to_both(producer, b"%d" % number)
                await appended_to_both(both, number + 1)
            waiting = max(each.replies.waiting_count for each in node.listeners[0].connections)
            assert waiting == 5
            node.broker.commits.fetched(both[1], FOLLOWER, 5, 0)
            node.broker.commits.fetched(both[0], FOLLOWER, 3, 0)
            none = ErrorCode.NONE
            for number in range(3):
                assert await produced_to_both(producer) == [(none, number)] * 2
            waiting = max(each.replies.waiting_count for each in node.listeners[0].connections)
            assert waiting == 2
            node.broker.commits.fetched(both[0], FOLLOWER, 5, 0)
            for number in (3, 4):
                assert await produced_to_both(producer) == [(none, number)] * 2

    asyncio.run(run())


@pytest.mark.parametrize("before", [0, 1])
def test_of_several_partitions_only_those_that_take_too_long_are_told_so(
    tmp_path: Path, before: int
) -> None:
    """By the slow path for the first request, by the shortcut for a second."""

    async def run() -> None:
        async with two_partitions(tmp_path) as (node, producer, both):

            def fetched_soon() -> None:
                node.broker.loop.call_soon(
                    node.broker.commits.fetched, both[1], FOLLOWER, both[1].log.log_end_offset, 0
                )

            both[1].on_progress = fetched_soon
            for number in range(before + 1):
                await post_to_both(producer, b"late", timeout_ms=1)
                late = (ErrorCode.REQUEST_TIMED_OUT, number)
                assert await produced_to_both(producer) == [late, (ErrorCode.NONE, number)]

    asyncio.run(run())


def test_requests_of_one_write_are_answered_together(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, follower):
            await post(producer, b"0")
            await appended(node, 1)
            await producer.send_bytes(
                b"".join(
                    b"".join(encode_request(produce_request("t", batch(b"x")), 9, number, "test"))
                    for number in range(2, 50)
                )
            )
            await appended(node, 49)
            connections = node.listeners[0].connections
            assert max(each.replies.waiting_count for each in connections) == 49
            assert partition_of(node).replication.waiting_count < 49
            await follow(follower, 49)
            found = [await produced(producer) for _ in range(49)]
            assert [(each.error_code, each.base_offset) for each in found] == [
                (ErrorCode.NONE, number) for number in range(49)
            ]

    asyncio.run(run())


def test_records_that_are_committed_just_before_somebody_waits_are_answered(tmp_path: Path) -> None:
    """The slow path begins to wait a turn of the loop after the write."""

    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, _):
            partition = partition_of(node)

            def fetched_at_once() -> None:
                end_offset = partition.log.log_end_offset
                node.broker.loop.call_soon(
                    node.broker.commits.fetched, partition, FOLLOWER, end_offset, 0
                )

            partition.on_progress = fetched_at_once
            for number in range(5):
                await post(producer, b"%d" % number)
                assert (await produced(producer)).error_code == ErrorCode.NONE

    asyncio.run(run())


def test_nothing_to_wait_for_is_no_wait() -> None:
    async def run() -> None:
        async with asyncio.timeout(10):
            assert await gathered(asyncio.get_running_loop(), []) == []

    asyncio.run(run())


def test_acks_of_the_leader_alone_wait_for_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, _):
            await post(producer, b"0", b"1", acks=1)
            assert [(await produced(producer)).base_offset for _ in range(2)] == [0, 1]
            assert partition_of(node).log.high_watermark == 0

    asyncio.run(run())


@pytest.mark.parametrize("before", [0, 1])
def test_a_commit_that_takes_too_long_is_told_and_the_records_stay(
    tmp_path: Path, before: int
) -> None:
    """By the slow path for the first request, by the shortcut for a second."""

    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, follower):
            for _ in range(before):
                await post(producer, b"before", timeout_ms=1)
                await produced(producer)
            await post(producer, b"late", timeout_ms=1)
            answer = await produced(producer)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert answer.base_offset == before
            await follow(follower, before + 1)
            found = await fetch(producer, "t")
            values = [one.value for each in batches(found.records or b"") for one in each.records()]
            assert values[-1] == b"late"
            assert partition_of(node).replication.waiting_count == 0

    asyncio.run(run())


def test_consumers_see_what_is_committed_by_the_shortcut_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (_, producer, follower):
            await post(producer, b"0", b"1", b"2", acks=1)
            for _ in range(3):
                await produced(producer)
            size = len(batch(b"0"))
            for offset in (1, 2):
                await follow(follower, offset)
                for _ in range(3):
                    found = await fetch(producer, "t")
                    assert found.high_watermark == offset
                    assert len(found.records or b"") == offset * size

    asyncio.run(run())


def test_who_waits_is_told_when_another_broker_leads(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, _):
            await post(producer, b"0", b"1")
            await appended(node, 2)
            partition = partition_of(node)
            image = partition.image
            partition.follow(
                replace(
                    image,
                    leader=FOLLOWER,
                    leader_epoch=image.leader_epoch + 1,
                    partition_epoch=image.partition_epoch + 1,
                )
            )
            for _ in range(2):
                code = (await produced(producer)).error_code
                assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(run())


def test_who_waits_is_told_when_the_topic_is_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, other):
            await post(producer, b"0")
            await appended(node, 1)
            await other.send(
                DeleteTopicsRequest(topic_names=(TopicName("t"),), timeout_ms=5_000), 5
            )
            code = (await produced(producer)).error_code
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_who_waits_is_told_when_the_disk_fails(tmp_path: Path) -> None:
    fs = FaultyFileSystem()

    async def run() -> None:
        async with (
            running_node(tmp_path, two_directories(tmp_path), fs=fs) as node,
            await Wire.connect(node) as producer,
            await Wire.connect(node) as other,
        ):
            await create_topic(producer, "t")
            give_follower(node)
            await post(producer, b"0")
            await appended(node, 1)
            fs.writes["/t-0/"] = OSError(5, "a sector cannot be written")
            await post(other, b"1")
            for wire in (producer, other):
                assert (await produced(wire)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(run())


def test_another_request_is_served_when_the_records_before_it_are_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, follower):
            await post(producer, b"0")
            asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
            topic = ListOffsetsTopic(name=TopicName("t"), partitions=(asked,))
            await producer.post(ListOffsetsRequest(topics=(topic,)), 5)
            await appended(node, 1)
            await follow(follower, 1)
            assert (await produced(producer)).error_code == ErrorCode.NONE
            answer = await producer.answer(ApiKey.LIST_OFFSETS, 5)
            # It sees the record before it, as the client may expect.
            assert answer.topics[0].partitions[0].offset == 1

    asyncio.run(run())


def test_a_marker_is_answered_when_it_is_committed(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, operator, follower):
            topic = WritableTxnMarkerTopic(name=TopicName("t"), partition_indexes=(0,))
            marker = WritableTxnMarker(
                producer_id=ProducerId(1),
                producer_epoch=0,
                transaction_result=True,
                topics=(topic,),
                coordinator_epoch=0,
            )
            await operator.post(WriteTxnMarkersRequest(markers=(marker,)), 1)
            await appended(node, 1)
            assert partition_of(node).replication.waiting_count == 1
            await follow(follower, 1)
            answer = await operator.answer(ApiKey.WRITE_TXN_MARKERS, 1)
            assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE

    asyncio.run(run())


def test_who_waits_for_a_deletion_is_told_when_the_leader_is_another(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, admin, follower):
            await post(admin, b"0")
            await appended(node, 1)
            await follow(follower, 1)
            await produced(admin)
            asked = DeleteRecordsPartition(partition_index=0, offset=1)
            topic = DeleteRecordsTopic(name=TopicName("t"), partitions=(asked,))
            await admin.post(DeleteRecordsRequest(topics=(topic,), timeout_ms=LONG_MS), 1)
            partition = partition_of(node)
            await until(lambda: partition.replication.waiting_count == 1)
            image = partition.image
            partition.follow(
                replace(image, leader=FOLLOWER, partition_epoch=image.partition_epoch + 1)
            )
            answer = await admin.answer(ApiKey.DELETE_RECORDS, 1)
            found = answer.topics[0].partitions[0]
            expected = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert (found.error_code, found.low_watermark) == expected

    asyncio.run(run())


@pytest.mark.parametrize("is_late", [False, True])
def test_records_are_deleted_when_the_follower_has_deleted_them_too(
    tmp_path: Path, *, is_late: bool
) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, admin, follower):
            await post(admin, b"0", b"1", b"2")
            await appended(node, 3)
            await follow(follower, 3)
            for _ in range(3):
                await produced(admin)
            asked = DeleteRecordsPartition(partition_index=0, offset=2)
            topic = DeleteRecordsTopic(name=TopicName("t"), partitions=(asked,))
            timeout_ms = 1 if is_late else LONG_MS
            await admin.post(DeleteRecordsRequest(topics=(topic,), timeout_ms=timeout_ms), 1)
            await until(lambda: partition_of(node).log.log_start_offset == 2)
            if not is_late:
                await turns(5)
                await follow(follower, 3, log_start_offset=2)
            answer = await admin.answer(ApiKey.DELETE_RECORDS, 1)
            found = answer.topics[0].partitions[0]
            expected = (ErrorCode.REQUEST_TIMED_OUT, 0) if is_late else (ErrorCode.NONE, 2)
            assert (found.error_code, found.low_watermark) == expected

    asyncio.run(run())


def produced_late(node: Node) -> Coroutine[Any, Any, ProduceResponse]:
    """Produce to the topic, write that, and return who is to wait for the commit."""
    connection = next(iter(node.listeners[0].connections))
    context = RequestContext(connection, PRODUCE_VERSION, "c")
    sent = produce_request("t", batch(b"0")).replace(timeout_ms=LONG_MS, acks=-1)
    received = memoryview(bytearray(sent.encode(PRODUCE_VERSION)))
    request, _ = ProduceRequest.decode(PRODUCE_VERSION, received, 0)
    late = handle_produce(node.broker, context, request)
    assert callable(late)
    node.broker.write_appends()
    answer = late()
    assert iscoroutine(answer)
    return answer


def test_nobody_begins_to_wait_for_a_topic_that_is_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, _, other):
            answer = produced_late(node)
            await other.send(
                DeleteTopicsRequest(topic_names=(TopicName("t"),), timeout_ms=5_000), 5
            )
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                (topic,) = (await answer).responses
            code = topic.partition_responses[0].error_code
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(run())


def test_a_fetch_that_cannot_be_answered_does_no_harm_to_who_produces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FetchReader) -> None:
        raise RuntimeError("a mistake")

    async def run() -> None:
        async with (
            running_node(tmp_path) as node,
            await Wire.connect(node) as producer,
            await Wire.connect(node) as consumer,
        ):
            await create_topic(producer, "t")
            asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic=TopicName("t"), partitions=(asked,))
            request = FetchRequest(
                max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1 << 20, topics=(topic,)
            )
            await consumer.post(request, FETCH_VERSION)
            await until(lambda: node.broker.purgatory.count == 1)
            monkeypatch.setattr(FetchReader, "response", fail)
            await post(producer, b"0")
            assert (await produced(producer)).error_code == ErrorCode.NONE
            assert await consumer.is_closed()

    asyncio.run(run())


def test_a_node_that_stops_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, _):
            await post(producer, b"0", b"1")
            await appended(node, 2)
        assert await producer.is_closed()

    asyncio.run(run())


def test_a_new_leader_tells_no_end_before_it_knows_what_is_committed(tmp_path: Path) -> None:
    """Rule G24 (KIP-207): consumers that ask for the latest offset, or a late time, ask again."""

    async def listed(
        wire: Wire, timestamp: int, version: int, replica: int = -1
    ) -> tuple[int, int]:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=TopicName("t"), partitions=(asked,))
        request = ListOffsetsRequest(topics=(topic,)).replace(replica_id=replica)
        found = (await wire.send(request, version)).topics[0].partitions[0]
        return found.error_code, found.offset

    async def run() -> None:
        async with replicated(tmp_path) as (node, producer, follower):
            await post(producer, b"0")
            await appended(node, 1)
            partition = partition_of(node)
            assert await listed(follower, -1, 5) == (ErrorCode.NONE, 0)
            image = partition.image
            partition.follow(
                replace(
                    image,
                    leader_epoch=image.leader_epoch + 1,
                    partition_epoch=image.partition_epoch + 1,
                )
            )
            for timestamp in (-1, 2**62):
                assert await listed(follower, timestamp, 5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
                assert await listed(follower, timestamp, 4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert await listed(follower, -2, 5) == (ErrorCode.NONE, 0)
            assert await listed(follower, -1, 5, replica=FOLLOWER) == (ErrorCode.NONE, 1)
            await follow(follower, 1)
            assert await listed(follower, -1, 5) == (ErrorCode.NONE, 1)

    asyncio.run(run())
