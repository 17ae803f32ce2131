"""The fast path for the common fetch request must be the slow path, only shorter.

A connection's first fetch takes the slow path; the next ones of the same kind take the fast path.
Their frames must be the same, byte for byte, but for the correlation id.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.apis import ApiKey
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from dohle.records.builder import BatchBuilder
from dohle.records.control import build_txn_marker
from dohle.server.net.sending import SENDFILE_BYTES_MIN
from dohle.server.net.shortcut import Shortcut
from dohle.server.node import Node
from dohle.server.shortcuts.fetch import learn_fetch
from dohle.storage.producers.append import AppendOrigin
from tests.server.shortcuts.serving import serve, served
from tests.server.wire import Wire, batch, create_topic, on_node, produce

TOPIC = TopicName("orders")
VERSIONS = range(4, 18)
#: Offsets 0 to 4: small, and large enough to go from file to socket; the lengths around a varint's.
VALUES = (
    b"a",
    bytes(SENDFILE_BYTES_MIN - 80),
    b"b" * 40,
    bytes(SENDFILE_BYTES_MIN),
    bytes(300_000),
)
ALL = 1 << 20
ONE_BATCH = 1
_CORRELATION = range(4, 8)
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_MARK_WORD = 0x1BADB002


def fetch_of(topic_id: Uuid, offset: int, limit: int = ALL, **changes: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    topic = FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=(partition,))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=limit, topics=(topic,))
    return request.replace(**changes)


def with_partition(request: FetchRequest, **changes: Any) -> FetchRequest:
    (topic,) = request.topics
    partitions = (topic.partitions[0].replace(**changes),)
    return request.replace(topics=(topic.replace(partitions=partitions),))


def frame_of(request: FetchRequest, version: int, correlation_id: int = 1) -> memoryview:
    """Return a frame as a connection hands it on: without its size."""
    return memoryview(b"".join(encode_request(request, version, correlation_id, "repeats")))[4:]


async def answer_of(wire: Wire, frame: memoryview) -> bytes:
    """Send a frame, and return the answer's without the correlation id, which must be ours."""
    await wire.send_bytes(len(frame).to_bytes(4, "big") + frame)
    answer = await wire.read_frame()
    assert answer[:4] == frame[4:8]
    return answer[4:]


async def first_answer(node: Node, frame: memoryview) -> bytes:
    """Return what a new connection is answered, which always takes the slow path."""
    async with await Wire.connect(node) as fresh:
        return await answer_of(fresh, frame)


def partition_of(answer: bytes, version: int) -> PartitionData:
    _, offset = parse_response_header(FetchRequest.API_KEY, version, bytes(4) + answer)
    response = FetchResponse.from_bytes(version, answer[offset - 4 :])
    return response.responses[0].partitions[0]


def shortcut_in(node: Node) -> Shortcut | None:
    """Return what the only connection that has fetched anything has learnt."""
    shortcuts = [c.shortcuts.get(ApiKey.FETCH) for c in node.listeners[0].connections]
    found = [shortcut for shortcut in shortcuts if shortcut]
    assert len(found) <= 1
    return found[0] if found else None


async def shortcut_of(node: Node, wire: Wire, request: FetchRequest, version: int) -> Shortcut:
    for connection in node.listeners[0].connections:
        # What came before may have been in vain.
        connection.shortcuts.pop(ApiKey.FETCH, None)
        connection.unlearnt.clear()
    await answer_of(wire, frame_of(request, version))
    shortcut = shortcut_in(node)
    assert shortcut is not None
    return shortcut


async def fill(wire: Wire) -> Uuid:
    topic = await create_topic(wire, TOPIC)
    for value in VALUES:
        assert (await produce(wire, TOPIC, batch(value))).error_code == 0
    return topic.topic_id


def abort_a_transaction(node: Node, value: bytes) -> None:
    """Append what a producer of an aborted transaction leaves in the log."""
    partition = node.broker.partitions.get(TOPIC, 0)
    assert partition is not None
    log, now_ms = partition.log, 1_000
    guard = log.producer_state.start_transaction_verification(7, 0, 0, False, now_ms)
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(now_ms, None, value)
    epoch = partition.leader_epoch
    log.append_as_leader(builder.build(), epoch, verification_guard=guard)
    log.append_as_leader(
        build_txn_marker(False, 7, 0, 0, now_ms),
        epoch,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=0,
    )
    log.update_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("isolation", [_READ_UNCOMMITTED, _READ_COMMITTED])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_fetch_is_answered_with_the_bytes_of_a_first_one(
    tmp_path: Path, version: int, isolation: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = await fill(wire)
        for limit in (ONE_BATCH, ALL):
            request = fetch_of(topic_id, 0, limit, isolation_level=isolation)
            shortcut = await shortcut_of(node, wire, request, version)
            for offset in (*range(len(VALUES)), 3, 0):
                frame = frame_of(
                    with_partition(request, fetch_offset=offset), version, 100 + offset
                )
                assert serve(shortcut, node.broker, frame) is not None
                repeated = await answer_of(wire, frame)
                assert shortcut_in(node) is shortcut
                assert repeated == await first_answer(node, frame)
                values = VALUES[offset:] if limit == ALL else VALUES[offset : offset + 1]
                size = sum(len(batch(value)) for value in values)
                assert len(partition_of(repeated, version).records or b"") == size

    on_node(tmp_path, scenario)


def lookups(topic_id: Uuid) -> Iterator[tuple[str, FetchRequest, ErrorCode]]:
    """Fetches that fit but for which the fast path has no answer."""
    end = len(VALUES)
    request = fetch_of(topic_id, 0)
    yield "at the end", fetch_of(topic_id, end), ErrorCode.NONE
    yield "beyond the end", fetch_of(topic_id, end + 1), ErrorCode.OFFSET_OUT_OF_RANGE
    yield "before the start", fetch_of(topic_id, -1), ErrorCode.OFFSET_OUT_OF_RANGE
    unknown = with_partition(request, current_leader_epoch=9)
    yield "an epoch to come", unknown, ErrorCode.UNKNOWN_LEADER_EPOCH
    yield "more than there is", fetch_of(topic_id, 0, min_bytes=ALL), ErrorCode.NONE
    nowhere = with_partition(request, partition=5)
    yield "no such partition", nowhere, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [11, 12, 17])
def test_errors_empty_reads_and_too_little_take_the_slow_path(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = await fill(wire)
        for what, request, code in lookups(topic_id):
            frame = frame_of(request, version, 5)
            # Once to be remembered, and once more.
            shortcut = await shortcut_of(node, wire, request, version)
            assert serve(shortcut, node.broker, frame) is None, what
            repeated = await answer_of(wire, frame)
            assert repeated == await first_answer(node, frame), what
            assert partition_of(repeated, version).error_code == code, what

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_differs_in_any_byte_takes_the_slow_path(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = await fill(wire)
        request = fetch_of(topic_id, 0)
        shortcut = await shortcut_of(node, wire, request, version)
        frame = frame_of(request, version)
        other = frame_of(fetch_of(topic_id, -1), version)
        may_change = {at for at, byte in enumerate(frame) if byte != other[at]} | {*_CORRELATION}
        assert len(may_change) == 12
        for at in range(len(frame)):
            changed = bytearray(frame)
            changed[at] ^= 1
            reply = serve(shortcut, node.broker, memoryview(changed))
            assert reply is None or at in may_change, at
            assert serve(shortcut, node.broker, frame[:at]) is None
        assert serve(shortcut, node.broker, memoryview(bytes(frame) + b"\0")) is None
        assert serve(shortcut, node.broker, frame) is not None

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("value", [b"undone", bytes(SENDFILE_BYTES_MIN)])
@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_transactions_take_the_slow_path(
    tmp_path: Path, version: int, value: bytes
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = await fill(wire)
        request = fetch_of(topic_id, 0, ONE_BATCH, isolation_level=_READ_COMMITTED)
        shortcut = await shortcut_of(node, wire, request, version)
        abort_a_transaction(node, value)
        frame = frame_of(with_partition(request, fetch_offset=len(VALUES)), version)
        assert serve(shortcut, node.broker, frame) is None
        repeated = await answer_of(wire, frame)
        assert repeated == await first_answer(node, frame)
        (aborted,) = partition_of(repeated, version).aborted_transactions or ()
        assert (aborted.producer_id, aborted.first_offset) == (7, len(VALUES))

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [4, 12, 17])
def test_only_the_common_kind_is_learnt_from(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = await fill(wire)
        (topic,) = fetch_of(topic_id, 0).topics
        twice = (topic.replace(partitions=topic.partitions * 2),)
        uncommon = [fetch_of(topic_id, 0, topics=()), fetch_of(topic_id, 0, topics=twice)]
        if version >= 15:
            follower = ReplicaState(replica_id=BrokerId(2), replica_epoch=1)
            uncommon.append(fetch_of(topic_id, 0, replica_state=follower))
        else:
            uncommon.append(fetch_of(topic_id, 0, replica_id=2))
        if version >= 7:
            uncommon.append(fetch_of(topic_id, 0, session_epoch=0))
        if version >= 12:
            uncommon.append(with_partition(fetch_of(topic_id, 0), last_fetched_epoch=0))
        for request in uncommon:
            assert learn_fetch(node.broker, served(frame_of(request, version))) is None
        common = served(frame_of(fetch_of(topic_id, 0), version))
        assert learn_fetch(node.broker, common) is not None

    on_node(tmp_path, scenario)


def test_no_numbers_of_a_request_are_taken_for_its_offset(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = await fill(wire)
        odd = fetch_of(topic_id, 0, ONE_BATCH, max_wait_ms=_MARK_WORD, min_bytes=_MARK_WORD)
        await shortcut_of(node, wire, odd, 12)
        frame = frame_of(odd.replace(max_wait_ms=2, min_bytes=0), 12)
        assert await answer_of(wire, frame) == await first_answer(node, frame)

    on_node(tmp_path, scenario)
