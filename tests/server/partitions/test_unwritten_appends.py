"""A fetch that waits and then fails is its own client's trouble, not that of who woke it.

Appends are held until the end of a read event, then written, and then those who wait are looked at.
Whatever goes wrong with the looking, what was acknowledged is in the log.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.seams import ManualClock
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.server.node import Node
from tests.server.faults import FaultyFileSystem, until, watched_node
from tests.server.partitions.fetching import FETCH_VERSION, fetch, fetch_of, two_directories, values
from tests.server.wire import Wire, batch, create_topic, produce, running_node

FOREVER_MS = 3_600_000
#: The first read finds the batch, the second takes the records.
SPARED = (0, 1)
FAULTS = (OSError(errno.EIO, "a sector cannot be read"), RuntimeError("nobody thought of this"))
#: What is short takes one read, what is longer one to find it and another.
FIRST = (b"first", b"first" * 2_000)


async def delay(node: Node, wire: Wire, request: FetchRequest) -> None:
    """Send a fetch, and return when it waits."""
    before = node.broker.purgatory.count
    await wire.post(request, FETCH_VERSION)
    await until(lambda: node.broker.purgatory.count == before + 1)


async def produce_to_both(wire: Wire, value: bytes) -> dict[str, int]:
    """Append to both topics by one request, and return the error codes."""
    data = (PartitionProduceData(index=0, records=batch(value)),)
    topics = tuple(TopicProduceData(name=TopicName(t), partition_data=data) for t in "ab")
    answer = await wire.send(ProduceRequest(acks=1, timeout_ms=5_000, topic_data=topics), 12)
    return {one.name: one.partition_responses[0].error_code for one in answer.responses}


@pytest.mark.parametrize("spared", SPARED)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_parked_fetch_that_cannot_read_costs_no_acknowledged_record(
    tmp_path: Path, fault: Exception, spared: int
) -> None:
    fs, first = FaultyFileSystem(), FIRST[spared]

    async def run() -> None:
        stopped, killed = tmp_path / "stopped", tmp_path / "killed"
        async with (
            running_node(stopped, two_directories(stopped), fs=fs) as node,
            await Wire.connect(node) as producer,
            await Wire.connect(node) as consumer,
            await Wire.connect(node) as other,
        ):
            await create_topic(producer, "a")
            await create_topic(producer, "b")
            await delay(node, consumer, fetch_of("a", wait_ms=FOREVER_MS))
            fs.reads["/a-0/"], fs.reads_spared = fault, spared
            codes = await produce_to_both(producer, first)
            assert codes["b"] == 0
            assert fs.failed > 0
            fs.reads.clear()
            # The producer's connection goes on, and so does its buffer.
            assert (await produce(producer, "b", batch(b"second"))).error_code == 0
            assert await values(other, "b") == [first, b"second"]
            acknowledged = [first] if codes["a"] == 0 else []
            # As after a kill: nothing was closed.
            shutil.copytree(stopped, killed)
        for path in (stopped, killed):
            async with (
                running_node(path, two_directories(path)) as node,
                await Wire.connect(node) as wire,
            ):
                assert await values(wire, "b") == [first, b"second"]
                assert (await values(wire, "a"))[: len(acknowledged)] == acknowledged

    asyncio.run(run())


@pytest.mark.parametrize("spared", SPARED)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_parked_fetch_that_cannot_read_at_its_end_leaves_the_others_answered(
    tmp_path: Path, fault: Exception, spared: int
) -> None:
    fs, first = FaultyFileSystem(), FIRST[spared]

    clock = ManualClock()

    async def run() -> None:
        async with (
            watched_node(tmp_path, [], two_directories(tmp_path), fs=fs, clock=clock) as node,
            await Wire.connect(node) as wire,
            await Wire.connect(node) as failing,
            await Wire.connect(node) as other,
        ):
            for topic in "ab":
                await create_topic(wire, topic)
                assert (await produce(wire, topic, batch(first))).error_code == 0
            # The one that fails comes first, and both are due in the same moment.
            await delay(node, failing, fetch_of("a", wait_ms=50, min_bytes=100_000))
            await delay(node, other, fetch_of("b", wait_ms=50, min_bytes=100_000))
            fs.reads["/a-0/"], fs.reads_spared = fault, spared
            clock.advance(50)
            answer = await other.answer(FetchRequest.API_KEY, FETCH_VERSION)
            assert len(answer.responses[0].partitions[0].records) == len(batch(first))
            if isinstance(fault, OSError):
                answer = await failing.answer(FetchRequest.API_KEY, FETCH_VERSION)
                code = answer.responses[0].partitions[0].error_code
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
            else:
                assert await failing.is_closed()
            assert node.broker.purgatory.count == 0

    asyncio.run(run())


def test_a_fetch_whose_client_goes_in_the_same_moment_does_not_harm_who_wakes_it(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with (
            running_node(tmp_path) as node,
            await Wire.connect(node) as wire,
            await Wire.connect(node) as leaving,
        ):
            await create_topic(wire, "a")
            await delay(node, leaving, fetch_of("a", wait_ms=FOREVER_MS, min_bytes=1))
            (delayed,) = node.broker.purgatory.watching(TopicPartition(TopicName("a"), 0))
            # What happens when the client is found to have gone: who waits is told a turn later.
            delayed.request.future.cancel()
            delayed.request.recheck(TopicPartition(TopicName("a"), 0))
            delayed.request.answer()
            assert (await produce(wire, "a", batch(b"x"))).error_code == 0
            assert node.broker.purgatory.count == 0

    asyncio.run(run())


@pytest.mark.parametrize(("again", "spared"), [*((False, each) for each in SPARED), (True, 0)])
def test_a_read_error_is_answered_with_a_storage_error(
    tmp_path: Path, *, again: bool, spared: int
) -> None:
    """By the slow path, and by the shortcut of a repeated fetch, which reads only once."""
    fs, first = FaultyFileSystem(), FIRST[spared]

    async def run() -> None:
        async with (
            running_node(tmp_path, two_directories(tmp_path), fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            await create_topic(wire, "a")
            assert (await produce(wire, "a", batch(first))).error_code == 0
            if again:
                assert await values(wire, "a") == [first]
            fs.reads["/a-0/"], fs.reads_spared = FAULTS[0], spared
            assert (await fetch(wire, "a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert [path for path in node.logs.offline_directories if path.endswith("/one")]

    asyncio.run(run())
