"""When a fetch is answered, and what asking for a topic does not do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from dohle.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dohle.protocol.schema import CHUNK_BYTES_MIN
from dohle.records.batch import batches
from dohle.server.net.sending import SENDFILE_BYTES_MIN
from dohle.server.node import Node
from dohle.server.partitions import fetch_reader
from dohle.server.partitions.fetch_reader import COPIED_BYTES_AT_ONCE
from tests.server.wire import Wire, batch, create_topic, on_node, produce

#: Longer than a test waits for an answer.
FOREVER_MS = 3_600_000


async def fetch(wire: Wire, offset: int, *, min_bytes: int, max_bytes: int) -> PartitionData:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_wait_ms=FOREVER_MS,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=TopicName("t"), partitions=(partition,)),),
    )
    answer = await wire.send(request, 12)
    result: PartitionData = answer.responses[0].partitions[0]
    return result


async def fill(wire: Wire, count: int, **configs: str) -> int:
    """Return the size of each of the equal batches."""
    await create_topic(wire, "t", configs={k.replace("_", "."): v for k, v in configs.items()})
    records = batch(b"v" * 100_000)
    for _ in range(count):
        assert (await produce(wire, "t", records)).error_code == 0
    return len(records)


def test_a_fetch_that_wants_more_than_it_takes_is_answered_when_it_has_all_it_takes(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        size = await fill(wire, 4)
        found = await fetch(wire, 0, min_bytes=10 * size, max_bytes=2 * size)
        assert len(found.records or b"") == 2 * size

    on_node(tmp_path, scenario)


def test_a_fetch_in_an_older_segment_does_not_wait_for_the_newest_to_grow(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        size = await fill(wire, 20, segment_bytes="1048576")
        partition = node.broker.partitions.get("t", 0)
        assert partition is not None
        second = list(partition.log.segments)[1].base_offset
        found = await fetch(wire, second - 2, min_bytes=1_000_000, max_bytes=50_000_000)
        assert len(found.records or b"") == 2 * size

    on_node(tmp_path, scenario)


def as_replica(broker_id: int, version: int, epoch: int) -> dict[str, Any]:
    """Return what makes a fetch that of a broker."""
    if version < 15:
        return {"replica_id": broker_id}
    return {"replica_state": ReplicaState(replica_id=BrokerId(broker_id), replica_epoch=epoch)}


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (4, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (12, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (12, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (17, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (17, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (17, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@pytest.mark.parametrize("broker_id", [0, 1, 7])
def test_who_fetches_as_a_replica_must_be_another_one_of_the_partition(
    tmp_path: Path, version: int, epoch: int, code: ErrorCode, broker_id: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic = await create_topic(wire, "t")
        assert (await produce(wire, "t", batch(b"v"))).error_code == 0
        partition = FetchPartition(current_leader_epoch=epoch, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=FOREVER_MS,
            min_bytes=1 << 20,
            topics=(
                FetchTopic(topic=TopicName("t"), topic_id=topic.topic_id, partitions=(partition,)),
            ),
            **as_replica(broker_id, version, 3),
        )
        for _ in range(2):  # the second time a connection knows what to expect
            answer = await wire.send(request, version)
            found = answer.responses[0].partitions[0]
            assert found.error_code == code
            assert not found.records
            tells = version >= 16 and code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            told = found.current_leader
            assert (told.leader_id, told.leader_epoch) == (
                (node.broker.node_id, 0) if tells else (-1, -1)
            )

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("version", [1, 12])
def test_a_topic_that_is_asked_for_is_created_behind_the_answer(
    tmp_path: Path, name: str, version: int
) -> None:
    """As in Kafka: an internal topic gets the settings that its coordinators need."""
    names = [TopicName(name), TopicName("ordinary")]
    topics = tuple(MetadataRequestTopic(name=each) for each in names)
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)

    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(request, version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [topic.error_code for topic in answer.topics] == [unknown, unknown]
        assert not any(topic.partitions for topic in answer.topics)
        async with asyncio.timeout(20):
            while any(topic.error_code for topic in answer.topics):
                answer = await wire.send(request, version)
        found = {topic.name: len(topic.partitions) for topic in answer.topics}
        assert found == {names[0]: 50, names[1]: 1}
        assert node.controller.image.topic_config(names[0])["cleanup.policy"] == "compact"
        assert not node.controller.image.topic_config(names[1])

    on_node(tmp_path, scenario)


SMALL = SENDFILE_BYTES_MIN - 500
#: As many as are copied, some more, some that stay in their files, and some that are tiny.
FEW = [SMALL] * (COPIED_BYTES_AT_ONCE // SMALL + 5) + [SENDFILE_BYTES_MIN, 10, CHUNK_BYTES_MIN, 0]
#: So many that the request is decoded, and answered, in steps.
MANY = [SENDFILE_BYTES_MIN, *FEW, *([10] * 300)]


@pytest.mark.parametrize("sizes", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("is_delayed", [False, True])
def test_records_come_whole_in_memory_or_from_files(
    tmp_path: Path, sizes: list[int], is_delayed: bool
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", len(sizes))
        for index, size in enumerate(sizes):
            sent = await produce(wire, "t", batch(bytes([index % 256]) * size), index)
            assert sent.error_code == 0
        asked = tuple(
            FetchPartition(partition=index, partition_max_bytes=1 << 20)
            for index in range(len(sizes))
        )
        request = FetchRequest(
            max_wait_ms=100 if is_delayed else 0,
            min_bytes=32 << 20,
            max_bytes=64 << 20,
            topics=(FetchTopic(topic=TopicName("t"), partitions=asked),),
        )
        answer = await wire.send(request, 12)
        (topic,) = answer.responses
        assert [
            [record.value for one in batches(found.records) for record in one.records()]
            for found in topic.partitions
        ] == [[bytes([index % 256]) * size] for index, size in enumerate(sizes)]

    on_node(tmp_path, scenario)


def test_what_an_answer_cannot_hold_in_memory_comes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_reader, "COPIED_BYTES_AT_ONCE", 2_000)
    monkeypatch.setattr(fetch_reader, "COPIED_BYTES_MAX", 2_000)

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 10)
        for index in range(10):
            assert (await produce(wire, "t", batch(bytes(800)), index)).error_code == 0
        left = list(range(10))
        counts = []
        while left:
            asked = tuple(
                FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in left
            )
            request = FetchRequest(topics=(FetchTopic(topic=TopicName("t"), partitions=asked),))
            (topic,) = (await wire.send(request, 12)).responses
            assert [found.partition_index for found in topic.partitions] == left
            left = [found.partition_index for found in topic.partitions if not found.records]
            counts.append(len(asked) - len(left))
        assert counts == [3, 3, 3, 1]

    on_node(tmp_path, scenario)
