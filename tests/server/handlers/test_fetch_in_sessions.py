"""What a session's fetch says of partitions that have nothing new, and of those that have."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce

TOPIC = "t"
PARTITIONS = 3


class Session:
    """A consumer that has read every partition to its end."""

    def __init__(self, wire: Wire, version: int, topic_id: Uuid) -> None:
        self._wire, self._version, self._topic_id = wire, version, topic_id
        self._id = self._epoch = 0

    async def fetch(self, *asked: FetchPartition) -> dict[int, PartitionData]:
        """Fetch in the session; name what is new or changed."""
        topic = FetchTopic(topic=TopicName(TOPIC), topic_id=self._topic_id, partitions=asked)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=(topic,) if asked else (),
        )
        answer: FetchResponse = await self._wire.send(request, self._version)
        assert answer.error_code == ErrorCode.NONE
        self._id, self._epoch = answer.session_id, self._epoch + 1
        return {one.partition_index: one for each in answer.responses for one in each.partitions}


def at_end(partition: int, offset: int = 1, epoch: int = 0) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        partition_max_bytes=1_000,
    )


async def begin(wire: Wire, version: int) -> Session:
    topic = await create_topic(wire, TOPIC, PARTITIONS)
    for index in range(PARTITIONS):
        assert (await produce(wire, TOPIC, batch(b"v"), index)).error_code == 0
    session = Session(wire, version, topic.topic_id)
    assert set(await session.fetch(*map(at_end, range(PARTITIONS)))) == set(range(PARTITIONS))
    return session


@pytest.mark.parametrize("version", [12, 16])
def test_only_partitions_with_something_new_are_in_the_answer(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        session = await begin(wire, version)
        assert await session.fetch() == {}
        await produce(wire, TOPIC, batch(b"new"), 1)
        found = await session.fetch()
        assert set(found) == {1}
        assert found[1].records
        assert found[1].high_watermark == 2
        assert await session.fetch(at_end(1, offset=2)) == {}

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [12, 16])
def test_an_epoch_that_is_not_known_is_refused_even_where_nothing_is_new(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        session = await begin(wire, version)
        found = await session.fetch(at_end(2, epoch=7))
        assert {index: one.error_code for index, one in found.items()} == {
            2: ErrorCode.UNKNOWN_LEADER_EPOCH
        }

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [12, 16])
def test_a_directory_that_is_lost_is_told_even_where_nothing_is_new(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        session = await begin(wire, version)
        partition = node.broker.partitions.get(TOPIC, 0)
        assert partition is not None
        partition.log.disk.failed("the test", OSError("gone"))
        codes = {one.error_code for one in (await session.fetch()).values()}
        assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [12, 16])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_is_deleted_is_told_even_where_nothing_is_new(
    tmp_path: Path, version: int, is_made_anew: bool
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        session = await begin(wire, version)
        assert await session.fetch() == {}
        deleted = DeleteTopicState(name=TopicName(TOPIC))
        await wire.send(DeleteTopicsRequest(topics=(deleted,), timeout_ms=5_000), 6)
        if is_made_anew:
            await create_topic(wire, TOPIC, PARTITIONS)
        codes = {index: one.error_code for index, one in (await session.fetch()).items()}
        if not is_made_anew:
            expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif version >= 13:
            expected = ErrorCode.INCONSISTENT_TOPIC_ID
        else:
            # By its name the new one is found, and has nothing at the offset.
            expected = ErrorCode.OFFSET_OUT_OF_RANGE
        assert codes == dict.fromkeys(range(PARTITIONS), expected)

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", [12, 17])
def test_errors_of_very_many_partitions_are_told_each_time(tmp_path: Path, version: int) -> None:
    """A short request with a long answer: both are dealt with in slices."""
    unknown = range(PARTITIONS, 3_000)

    async def scenario(node: Node, wire: Wire) -> None:
        session = await begin(wire, version)
        for asked in (map(at_end, unknown), (), ()):
            answer = await session.fetch(*asked)
            assert list(answer) == list(unknown)
            assert {one.error_code for one in answer.values()} == {3}

    on_node(tmp_path, scenario)
