"""The ends of transactions in their partitions: written for sure, and what readers make of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from dohle.records.batch import batches
from dohle.server.internal_topics import CONSUMER_OFFSETS
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.marker import Marker
from dohle.server.transactions.marker_writer import MarkerWriter
from dohle.txn.state import TransactionState
from tests.server.faults import WatchedFileSystem, until
from tests.server.transactions.txn_producer import (
    GROUP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TOPICS,
    TxnProducer,
    commit_offset,
    committed_offset,
    committed_values,
    fetch,
    fetch_request,
    latest,
    lead,
    log_of,
    markers,
    on_transactional_node,
    read_committed,
    with_transactional_node,
)
from tests.server.wire import Wire

# What readers see


@pytest.mark.parametrize("version", [0, 2])
def test_readers_of_committed_records_wait_for_the_end_and_see_what_was_committed(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        expected: list[bytes] = []
        for number, commit in enumerate((True, False, True, True, False)):
            if version < 2:
                await producer.add(("a", 0))
            produce_version = 12 if version == 2 else 11
            value = b"%d" % number
            assert (await producer.send("a", value, version=produce_version)).error_code == 0
            found = await fetch(wire, "a")
            assert found.last_stable_offset == 2 * number == await latest(wire, "a", READ_COMMITTED)
            assert found.high_watermark == 2 * number + 1
            assert await latest(wire, "a", READ_UNCOMMITTED) == 2 * number + 1
            assert committed_values(found) == expected
            await producer.ended(commit=commit, version=version)
            if commit:
                expected.append(value)
            assert await read_committed(wire, "a") == expected
            assert await latest(wire, "a", READ_COMMITTED) == 2 * number + 2
        found = await fetch(wire, "a", isolation=READ_UNCOMMITTED)
        assert found.aborted_transactions is None
        assert committed_values(found) == [b"0", b"1", b"2", b"3", b"4"]
        assert await markers(wire, "a") == ["COMMIT", "ABORT", "COMMIT", "COMMIT", "ABORT"]

    on_transactional_node(tmp_path, scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_wakes_a_fetch_of_committed_records(tmp_path: Path, commit: bool) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        async with await Wire.connect(node) as reader:
            await reader.post(fetch_request("a", wait_ms=3_600_000), 12)
            await until(lambda: node.broker.purgatory.count == 1)
            assert (await producer.send("a", b"y")).error_code == 0
            # It was looked at again, and waits on.
            assert node.broker.purgatory.count == 1
            await producer.end(commit=commit)
            answer = await reader.answer(FetchRequest.API_KEY, 12)
            found = answer.responses[0].partitions[0]
            assert committed_values(found) == ([b"x", b"y"] if commit else [])
            assert [batch.is_control for batch in batches(found.records)] == [False, False, True]

    on_transactional_node(tmp_path, scenario)


def test_the_oldest_open_transaction_holds_readers_back(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, first: TxnProducer) -> None:
        second = await TxnProducer(node, wire, "other").init()
        assert (await first.send("a", b"first")).error_code == 0
        assert (await second.send("a", b"second")).error_code == 0
        await second.ended(commit=True)
        assert await read_committed(wire, "a") == []
        await first.ended(commit=False)
        assert await read_committed(wire, "a") == [b"second"]

    on_transactional_node(tmp_path, scenario)


# Writing them


def test_all_partitions_of_a_transaction_get_the_marker(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        for topic in TOPICS:
            assert (await producer.send(topic, b"x")).error_code == 0
        epoch = producer.producer_epoch
        await producer.ended(commit=True)
        for topic in TOPICS:
            assert await markers(wire, topic) == ["COMMIT"]
            entry = log_of(node, topic).producer_state.producers[producer.producer_id]
            assert entry.producer_epoch == epoch + 1
            assert entry.coordinator_epoch == 0
        assert len(node.broker.txn_markers) == 0

    on_transactional_node(tmp_path, scenario)


async def end_here(node: Node, producer: TxnProducer) -> None:
    await node.broker.transactions.call(
        producer.transactional_id,
        lambda machine, ticket: machine.end_txn(
            producer.transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            True,
            ticket,
            client_transaction_version=2,
        ),
    )


def test_the_markers_of_many_transactions_are_one_write_for_each_partition(tmp_path: Path) -> None:
    fs, writes = WatchedFileSystem(), list[str]()

    async def scenario(node: Node, wire: Wire, _: TxnProducer) -> None:
        producers = [await TxnProducer(node, wire, f"tx-{n}").init() for n in range(20)]
        for producer in producers:
            for topic in TOPICS:
                assert (await producer.send(topic, b"x")).error_code == 0
        fs.on_write = writes.append
        # All are decided in the same turn of the loop.
        await asyncio.gather(*(end_here(node, producer) for producer in producers))
        await until(lambda: len(node.broker.txn_markers) == 0)
        for topic in TOPICS:
            assert sum(f"/{topic}-0/" in path for path in writes) == 1
            assert await read_committed(wire, topic) == [b"x"] * 20

    asyncio.run(with_transactional_node(tmp_path, scenario, fs=fs))


def test_what_is_too_much_for_one_turn_is_spread_over_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dohle.server.transactions.markers.MARKERS_PER_TURN", 3)
    fs, writes = WatchedFileSystem(), list[str]()

    async def scenario(node: Node, wire: Wire, _: TxnProducer) -> None:
        producers = [await TxnProducer(node, wire, f"tx-{n}").init() for n in range(5)]
        for producer in producers:
            for topic in TOPICS:
                for index in range(2):
                    assert (await producer.send(topic, b"x", index=index)).error_code == 0
        await lead(node, "b", is_led=False)
        fs.on_write = writes.append
        await asyncio.gather(*(end_here(node, producer) for producer in producers))
        await until(lambda: log_of(node, "b", 1).log_end_offset == 10)
        # Twenty markers, three in a turn, one of a partition that has no leader in each four.
        assert sum("/a-0/" in path for path in writes) > 1
        assert log_of(node, "b", 0).log_end_offset == 5
        await lead(node, "b", is_led=True)
        await until(lambda: len(node.broker.txn_markers) == 0)
        for topic in TOPICS:
            for index in range(2):
                assert await read_committed(wire, topic, index) == [b"x"] * 5
                assert await markers(wire, topic, index) == ["COMMIT"] * 5

    asyncio.run(with_transactional_node(tmp_path, scenario, fs=fs))


class FailingWriter(MarkerWriter):
    """Fails once, in a way that nobody has thought of."""

    has_failed = False

    def append(self, key: TopicPartition, marker: Marker) -> Partition:
        """Append a marker, but not the first."""
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("this should not happen")
        return super().append(key, marker)


def test_a_failure_that_nobody_has_thought_of_is_tried_again(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        other = await TxnProducer(node, wire, "other").init()
        for each in (producer, other):
            assert (await each.send("a", b"x")).error_code == 0
        node.broker.txn_markers.writer = FailingWriter(node.broker)
        await asyncio.gather(*(end_here(node, each) for each in (producer, other)))
        await until(lambda: len(node.broker.txn_markers) == 0)
        assert await markers(wire, "a") == ["COMMIT", "COMMIT"]

    on_transactional_node(tmp_path, scenario)


def test_a_marker_is_tried_again_until_its_partition_has_a_leader(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        for topic in TOPICS:
            assert (await producer.send(topic, b"x")).error_code == 0
        await lead(node, "b", is_led=False)
        await producer.end(commit=True)
        await until(lambda: log_of(node, "a").log_end_offset == 2)
        assert producer.state is TransactionState.PREPARE_COMMIT
        assert log_of(node, "b").log_end_offset == 1
        await lead(node, "b", is_led=True)
        await until(lambda: producer.state is TransactionState.COMPLETE_COMMIT)
        for topic in TOPICS:
            assert await markers(wire, topic) == ["COMMIT"]

    on_transactional_node(tmp_path, scenario)


def test_a_marker_is_taken_whatever_size_the_topic_allows(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        configs = (AlterableConfig(name="max.message.bytes", value="10"),)
        resource = AlterConfigsResource(resource_type=2, resource_name="a", configs=configs)
        answer = await wire.send(IncrementalAlterConfigsRequest(resources=(resource,)))
        assert answer.responses[0].error_code == 0
        assert (await producer.send("a", b"y")).error_code == ErrorCode.MESSAGE_TOO_LARGE
        await producer.ended(commit=True)
        assert await read_committed(wire, "a") == [b"x"]

    on_transactional_node(tmp_path, scenario)


def test_a_partition_that_was_deleted_needs_no_marker(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        for topic in TOPICS:
            assert (await producer.send(topic, b"x")).error_code == 0
        await lead(node, "b", is_led=False)
        await producer.end(commit=True)
        topics = (DeleteTopicState(name=TopicName("b")),)
        answer = await wire.send(DeleteTopicsRequest(topics=topics, timeout_ms=1_000))
        assert answer.responses[0].error_code == 0
        await until(lambda: producer.state is TransactionState.COMPLETE_COMMIT)
        assert await read_committed(wire, "a") == [b"x"]
        assert (await producer.send("a", b"y")).error_code == 0
        await producer.ended(commit=True)

    on_transactional_node(tmp_path, scenario)


def test_a_leader_that_has_seen_a_newer_coordinator_ends_it(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        await abort(wire, producer, "a", coordinator_epoch=5)
        assert await markers(wire, "a") == ["ABORT"]
        await producer.end(commit=False)
        await until(lambda: len(node.broker.txn_markers) == 0)
        assert producer.state is TransactionState.PREPARE_ABORT
        assert await markers(wire, "a") == ["ABORT"]

    on_transactional_node(tmp_path, scenario)


# Offsets of groups


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_s_offsets_count_when_it_is_committed(
    tmp_path: Path, version: int, commit: bool
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        if version == 0:
            for old, code in (
                (3, ErrorCode.INVALID_TXN_STATE),
                (4, ErrorCode.TRANSACTION_ABORTABLE),
            ):
                assert await commit_offset(producer, "a", 5, version=old) == code
            await producer.add_offsets(GROUP)
        assert await commit_offset(producer, "a", 7, version=5 if version else 3) == 0
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await committed_offset(wire, "a", require_stable=True) == (-1, unstable)
        assert await committed_offset(wire, "a") == (-1, 0)
        await producer.ended(commit=commit, version=version)
        expected = (7 if commit else -1, 0)
        assert await committed_offset(wire, "a", require_stable=True) == expected

    on_transactional_node(tmp_path, scenario)


def test_markers_wait_for_the_group_coordinator(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        assert await commit_offset(producer, "a", 7) == 0
        index = node.broker.groups.partition_of(GROUP)
        assert index is not None
        await lead(node, CONSUMER_OFFSETS, index, is_led=False)
        found = await write_markers(
            wire, marker_request(99, 0, (CONSUMER_OFFSETS, index), ("b", 0), commit=True)
        )
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found == {99: {(CONSUMER_OFFSETS, index): not_leader, ("b", 0): 0}}
        await producer.end(commit=True)
        await until(lambda: log_of(node, "a").log_end_offset == 2)
        assert producer.state is TransactionState.PREPARE_COMMIT
        await lead(node, CONSUMER_OFFSETS, index, is_led=True)
        await until(lambda: producer.state is TransactionState.COMPLETE_COMMIT)
        assert await committed_offset(wire, "a", require_stable=True) == (7, 0)

    on_transactional_node(tmp_path, scenario)


# WriteTxnMarkers


def marker_request(
    producer_id: int,
    epoch: int,
    *keys: tuple[str, int],
    commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=ProducerId(producer_id),
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=tuple(
            WritableTxnMarkerTopic(name=TopicName(topic), partition_indexes=(index,))
            for topic, index in keys
        ),
    )


async def write_markers(
    wire: Wire, *asked: WritableTxnMarker, version: int = 2
) -> dict[int, dict[tuple[str, int], int]]:
    answer = await wire.send(WriteTxnMarkersRequest(markers=asked), version)
    return {
        result.producer_id: {
            (topic.name, partition.partition_index): partition.error_code
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in answer.markers
    }


async def abort(
    wire: Wire, producer: TxnProducer, topic: str, *, coordinator_epoch: int, version: int = 1
) -> int:
    """Abort as an operator does it."""
    asked = marker_request(
        producer.producer_id,
        producer.producer_epoch,
        (topic, 0),
        coordinator_epoch=coordinator_epoch,
    )
    found = await write_markers(wire, asked, version=version)
    return found[producer.producer_id][topic, 0]


@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 3])
def test_an_operator_can_abort_a_transaction_that_hangs(
    tmp_path: Path, coordinator_epoch: int
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        assert await latest(wire, "a", READ_COMMITTED) == 0
        assert await abort(wire, producer, "a", coordinator_epoch=coordinator_epoch) == 0
        assert await latest(wire, "a", READ_COMMITTED) == 2
        found = await fetch(wire, "a")
        assert committed_values(found) == []
        assert [txn.producer_id for txn in found.aborted_transactions or ()] == [
            producer.producer_id
        ]

    on_transactional_node(tmp_path, scenario)


def test_what_is_wrong_with_a_marker_is_told_for_each_partition(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        pid = producer.producer_id
        assert (await producer.send("a", b"x")).error_code == 0
        await lead(node, "b", is_led=False)
        found = await write_markers(
            wire,
            marker_request(pid, 0, ("a", 0), ("b", 0), ("a", 7), ("nowhere", 0), commit=True),
            marker_request(pid + 1, 3, ("a", 0), coordinator_epoch=2),
            marker_request(pid + 2, -1, ("a", 0)),
            marker_request(pid + 3, 0, ("a", 0), transaction_version=-1),
        )
        assert found == {
            pid: {
                ("a", 0): 0,
                ("b", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
            pid + 1: {("a", 0): 0},
            pid + 2: {("a", 0): ErrorCode.INVALID_REQUEST},
            pid + 3: {("a", 0): ErrorCode.INVALID_REQUEST},
        }
        assert await read_committed(wire, "a") == [b"x"]
        old = ErrorCode.INVALID_PRODUCER_EPOCH
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        key = ("a", 0)
        stale = marker_request(pid + 1, 2, key, coordinator_epoch=2)
        assert await write_markers(wire, stale) == {pid + 1: {key: old}}
        deposed = marker_request(pid + 1, 3, key, coordinator_epoch=1)
        assert await write_markers(wire, deposed) == {pid + 1: {key: fenced}}
        assert await write_markers(wire) == {}

    on_transactional_node(tmp_path, scenario)


def test_under_v2_a_marker_of_the_transaction_s_own_epoch_is_late(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        assert (await producer.send("a", b"x")).error_code == 0
        pid, key = producer.producer_id, ("a", 0)
        asked = marker_request(pid, producer.producer_epoch, key, transaction_version=2)
        refused = {pid: {key: ErrorCode.INVALID_PRODUCER_EPOCH}}
        assert await write_markers(wire, asked) == refused
        await producer.ended(commit=True)
        # Now it is the same marker once more.
        asked = marker_request(pid, producer.producer_epoch, key, transaction_version=2)
        assert await write_markers(wire, asked) == {pid: {key: 0}}
        assert await read_committed(wire, "a") == [b"x"]

    on_transactional_node(tmp_path, scenario)
