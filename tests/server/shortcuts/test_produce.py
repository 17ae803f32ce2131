"""The fast path for the common produce request must be the slow path, only shorter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TransactionalId, Uuid
from dohle.protocol.framing import encode_request, encode_response
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dohle.records.builder import BatchBuilder
from dohle.server.node import Node
from dohle.server.shortcuts.produce import ProduceShortcut, learn_produce
from dohle.server.shortcuts.produce_frames import PARTITIONS_MAX
from tests.server.shortcuts.serving import joined, serve_late, served
from tests.server.transactions.txn_producer import log_of, transactional_batch
from tests.server.wire import Wire, create_topic, on_node

TOPIC = TopicName("orders")


def records(size: int) -> bytes:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"v" * size)
    return bytes(builder.build())


def request(index: int = 0, data: bytes | None = None, **changes: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=index, records=records(20) if data is None else data)
    topic = TopicProduceData(name=TOPIC, partition_data=(partition,))
    return ProduceRequest(acks=-1, timeout_ms=1_500, topic_data=(topic,)).replace(**changes)


def frame_of(
    message: ProduceRequest, version: int, correlation_id: int, client_id: str | None = "rdkafka"
) -> memoryview:
    chunks = encode_request(message, version, correlation_id, client_id)
    return memoryview(bytearray(b"".join(chunks)))[4:]


def shortcut_of(
    node: Node, message: ProduceRequest, version: int, client_id: str | None = "rdkafka"
) -> ProduceShortcut:
    learnt = learn_produce(node.broker, served(frame_of(message, version, 1, client_id)))
    assert learnt is not None
    return learnt


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "x" * 300])
def test_a_request_that_fits_is_answered_with_the_same_bytes(
    tmp_path: Path, version: int, client_id: str | None
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=3)
        shortcut = shortcut_of(node, request(), version, client_id)
        assert shortcut is not None
        offsets = [0, 0, 0]
        for number, size in enumerate((0, 1, 50, 60, 70, 127, 200, 16_300, 16_400, 300_000)):
            index = number % 3
            frame = frame_of(request(index, records(size)), version, 100 + number, client_id)
            reply = serve_late(shortcut, node.broker, frame)
            assert reply is not None, size
            node.broker.write_appends()
            partition = PartitionProduceResponse(
                index=index, base_offset=offsets[index], log_start_offset=0
            )
            topics = (TopicProduceResponse(name=TOPIC, partition_responses=(partition,)),)
            general = encode_response(ProduceResponse(responses=topics), version, 100 + number)
            assert joined(reply()) == b"".join(general)
            offsets[index] += 1

    on_node(tmp_path, scenario)


def to_several(version: int, *topics: tuple[str, Uuid, tuple[int, ...]], size: int = 20) -> Any:
    """Make a request to partitions of topics, and the answer to it: offset 0 in each."""
    data, told = [], []
    for name, topic_id, indexes in topics:
        named = {"name": TopicName(name)} if version < 13 else {"topic_id": topic_id}
        parts = tuple(PartitionProduceData(index=n, records=records(size)) for n in indexes)
        data.append(TopicProduceData(partition_data=parts, **named))
        answers = tuple(
            PartitionProduceResponse(index=n, base_offset=0, log_start_offset=0) for n in indexes
        )
        told.append(TopicProduceResponse(partition_responses=answers, **named))
    return request(topic_data=tuple(data)), ProduceResponse(responses=tuple(told))


@pytest.mark.parametrize("version", range(3, 14))
def test_several_partitions_and_topics_are_answered_with_the_same_bytes(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        names = (TOPIC, "p" * 200, "q")
        ids = {name: (await create_topic(wire, name, partitions=30)).topic_id for name in names}
        learnt, _ = to_several(version, (TOPIC, ids[TOPIC], (29, 28)))
        shortcut = shortcut_of(node, learnt, version)
        first = 0
        # In several steps of appending, too; and one alone of another topic.
        for number, counts in enumerate([(1, 0, 0), (2, 0, 0), (0, 1, 0), (9, 0, 3), (2, 1, 2)]):
            asked = [
                (name, ids[name], tuple(range(first, first + count)))
                for name, count in zip(names, counts, strict=True)
                if count
            ]
            first += max(counts)
            message, answer = to_several(version, *asked, size=100 ** (number % 3))
            reply = serve_late(shortcut, node.broker, frame_of(message, version, 100 + number))
            assert reply is not None, asked
            node.broker.write_appends()
            assert joined(reply()) == b"".join(encode_response(answer, version, 100 + number))

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_frame_to_several_partitions_cut_anywhere_is_left_to_the_slow_path(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        ids = {name: (await create_topic(wire, name, 2)).topic_id for name in ("a", "b")}
        message, _ = to_several(version, *((name, ids[name], (0, 1)) for name in "ab"))
        shortcut = shortcut_of(node, message, version)
        whole = frame_of(message, version, 5)
        for size in range(len(whole)):
            assert shortcut.fits(whole[:size]) is None, size
        assert shortcut.fits(memoryview(bytearray(whole) + b"\0")) is None
        assert shortcut.fits(whole) is not None

    on_node(tmp_path, scenario)


def test_very_many_partitions_are_left_to_the_slow_path(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for version in (8, 9):
            one, _ = to_several(version, (TOPIC, Uuid(b""), (0,)))
            shortcut = shortcut_of(node, one, version)
            for count, fits in ((PARTITIONS_MAX, True), (PARTITIONS_MAX + 1, False)):
                once, _ = to_several(version, (TOPIC, Uuid(b""), tuple(range(count))))
                each, _ = to_several(version, *[(TOPIC, Uuid(b""), (0,))] * count)
                for message in (once, each):
                    frame = frame_of(message, version, 5)
                    assert (shortcut.fits(frame) is not None) == fits

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 12])
def test_one_refused_partition_of_several_does_not_touch_the_others(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=2)
        message, _ = to_several(version, (TOPIC, Uuid(b""), (0, 9, 1)))
        codes = []
        async with await Wire.connect(node) as other:
            # The second of the first connection takes the shortcut.
            for client in (wire, wire, other):
                (topic,) = (await client.send(message, version)).responses
                codes.append([(p.index, p.error_code) for p in topic.partition_responses])
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [[(0, 0), (9, unknown), (1, 0)]] * 3
        assert [log_of(node, TOPIC, index).log_end_offset for index in range(2)] == [3, 3]

    on_node(tmp_path, scenario)


def test_the_partitions_of_a_request_are_counted_as_on_the_slow_path(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=2)
        message, _ = to_several(12, (TOPIC, Uuid(b""), (0, 9, 1)))
        counted = node.broker.requests.of("Produce").errors
        by_way = []
        async with await Wire.connect(node) as other:
            for client in (wire, wire, other):
                before = counted.copy()
                await client.send(message, 12)
                for connection in node.listeners[0].connections:
                    for usage in connection.times.usages.values():
                        usage.count()
                by_way.append({code: counted[code] - before[code] for code in counted})
        expected = {ErrorCode.NONE: 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}
        assert by_way == [expected] * 3

    on_node(tmp_path, scenario)


def test_a_request_that_names_its_topic_by_id_is_answered_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = (await create_topic(wire, TOPIC)).topic_id
        partition = request().topic_data[0].partition_data
        topic = TopicProduceData(topic_id=topic_id, partition_data=partition)
        message = request(topic_data=(topic,))
        shortcut = shortcut_of(node, message, 13)
        reply = serve_late(shortcut, node.broker, frame_of(message, 13, 5))
        assert reply is not None
        node.broker.write_appends()
        found = TopicProduceResponse(
            topic_id=topic_id,
            partition_responses=(
                PartitionProduceResponse(index=0, base_offset=0, log_start_offset=0),
            ),
        )
        general = encode_response(ProduceResponse(responses=(found,)), 13, 5)
        assert joined(reply()) == b"".join(general)

    on_node(tmp_path, scenario)


def test_the_id_of_a_topic_that_was_made_anew_does_not_fit(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = (await create_topic(wire, TOPIC)).topic_id
        partition = request().topic_data[0].partition_data
        topic = TopicProduceData(topic_id=topic_id, partition_data=partition)
        message = request(topic_data=(topic,))
        assert (await wire.send(message, 13)).responses[0].partition_responses[0].error_code == 0
        shortcut = shortcut_of(node, message, 13)
        await wire.send(
            DeleteTopicsRequest(timeout_ms=5_000, topics=(DeleteTopicState(name=TOPIC),)), 6
        )
        await create_topic(wire, TOPIC)
        assert serve_late(shortcut, node.broker, frame_of(message, 13, 5)) is None
        answer = await wire.send(message, 13)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_ID

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 9])
def test_a_request_that_does_not_fit_is_left_to_the_slow_path(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC, partitions=3)
        shortcut = shortcut_of(node, request(), version)
        other = TopicProduceData(
            name=TopicName("other!"), partition_data=request().topic_data[0].partition_data
        )
        for message in (
            request(timeout_ms=7),
            request(acks=1),
            request(topic_data=()),
            request(topic_data=(other.replace(partition_data=()),)),
            request(index=9),
            request(transactional_id=TransactionalId("t")),
        ):
            assert serve_late(shortcut, node.broker, frame_of(message, version, 5)) is None
        assert serve_late(shortcut, node.broker, frame_of(request(), version - 1, 5)) is None
        assert serve_late(shortcut, node.broker, frame_of(request(), version, 5, "another")) is None

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 9])
def test_a_frame_cut_anywhere_is_left_to_the_slow_path(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        shortcut = shortcut_of(node, request(), version)
        whole = frame_of(request(), version, 5)
        for size in range(len(whole)):
            assert serve_late(shortcut, node.broker, whole[:size]) is None
        longer = memoryview(bytearray(whole) + b"\0")
        assert serve_late(shortcut, node.broker, longer) is None

    on_node(tmp_path, scenario)


def test_only_the_common_kind_is_learnt_from(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        empty = TopicProduceData(name=TOPIC)
        for uncommon in (request(acks=0), request(topic_data=()), request(topic_data=(empty,))):
            assert learn_produce(node.broker, served(frame_of(uncommon, 9, 1))) is None

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [9, 12])
def test_with_a_transactional_id_only_records_of_an_open_transaction_fit(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        log = log_of(node, TOPIC)
        transactional = TransactionalId("t")
        shortcut = shortcut_of(node, request(transactional_id=transactional), version)

        def fits(data: bytes) -> bool:
            frame = frame_of(request(data=data, transactional_id=transactional), version, 5)
            return serve_late(shortcut, node.broker, frame) is not None

        first, second = (transactional_batch([b"x"], 7, 0, sequence) for sequence in range(2))
        assert not fits(first)
        guard = log.producer_state.start_transaction_verification(7, 0, 0, True, 0)
        log.append_as_leader(bytearray(first), 0, verification_guard=guard)
        assert not fits(records(20))
        assert not fits(transactional_batch([b"x"], 8, 0, 0))
        assert not fits(transactional_batch([b"x"], 7, 1, 0))
        assert not fits(second[:60])
        assert log.log_end_offset == 1
        assert fits(second)
        assert log.log_end_offset == 2

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 12])
def test_errors_are_the_same_by_both_ways(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        good = await wire.send(request(), version)
        assert good.responses[0].partition_responses[0].error_code == 0
        damaged = bytearray(records(20))
        damaged[-1] ^= 1
        answers = []
        async with await Wire.connect(node) as other:
            for client in (wire, other):
                response = await client.send(request(data=bytes(damaged)), version)
                answers.append(response.responses[0].partition_responses[0])
        assert answers[0] == answers[1]
        assert answers[0].error_code == ErrorCode.CORRUPT_MESSAGE
        again = await wire.send(request(), version)
        assert again.responses[0].partition_responses[0].base_offset == 1

    on_node(tmp_path, scenario)
