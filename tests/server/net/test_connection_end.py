"""A client that says what it has to say and leaves: what it has sent counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.core.ids import TopicName
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.wire import ANSWER_TIMEOUT_S, Wire, batch, create_topic, on_node

REQUESTS = 2_000
VERSION = 9


def produce_frames(acks: int) -> bytes:
    data = PartitionProduceData(index=0, records=batch(b"value"))
    topic = TopicProduceData(name=TopicName("t"), partition_data=(data,))
    request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=(topic,))
    return b"".join(
        b"".join(encode_request(request, VERSION, number, "leaving")) for number in range(REQUESTS)
    )


async def connect(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = node.bootstrap.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def log_end_offset(node: Node) -> int:
    partition = node.broker.partitions.get("t", 0)
    assert partition is not None
    return partition.log.log_end_offset


@pytest.mark.parametrize("half", [False, True])
def test_a_client_that_closes_behind_its_last_unanswered_produce_loses_none(
    tmp_path: Path, *, half: bool
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        reader, writer = await connect(node)
        writer.write(produce_frames(acks=0))
        if half:
            writer.write_eof()
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                assert await reader.read() == b""
            assert log_end_offset(node) == REQUESTS
        writer.close()
        await writer.wait_closed()
        await until(lambda: log_end_offset(node) == REQUESTS)
        await until(lambda: len(node.listeners[0].connections) == 1)

    on_node(tmp_path, scenario)


def test_a_client_that_sends_no_more_gets_every_answer_before_the_close(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        reader, writer = await connect(node)
        writer.write(produce_frames(acks=1))
        writer.write_eof()
        for number in range(REQUESTS):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
            correlation_id, offset = parse_response_header(0, VERSION, frame)
            assert correlation_id == number
            answer = ProduceResponse.from_bytes(VERSION, frame[offset:])
            partition = answer.responses[0].partition_responses[0]
            assert (partition.error_code, partition.base_offset) == (0, number)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    on_node(tmp_path, scenario)


def test_half_a_request_before_the_end_is_dropped_and_what_came_before_it_counts(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        reader, writer = await connect(node)
        writer.write(produce_frames(acks=0)[:-1])
        writer.write_eof()
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            assert await reader.read() == b""
        assert log_end_offset(node) == REQUESTS - 1
        writer.close()
        await writer.wait_closed()

    on_node(tmp_path, scenario)
