"""Requests that are so long that they are decoded, handled and answered in slices."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dohle.core.ids import BrokerId, GroupId, TopicName
from dohle.protocol.framing import encode_request
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.server.wire import Wire, create_topic, running_node

MANY = 3_000
LATEST = -1


def list_offsets(indexes: range) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=BrokerId(-1),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(name),
                partitions=tuple(
                    ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                    for index in indexes
                ),
            )
            for name in ("t", "none")
        ),
    )


def test_a_long_request_is_answered_like_many_short_ones(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 20)
            answer: ListOffsetsResponse = await wire.send(list_offsets(range(MANY)))
            short = [
                await wire.send(list_offsets(range(start, start + 10)))
                for start in range(0, MANY, 10)
            ]
            for number, topic in enumerate(answer.topics):
                assert list(topic.partitions) == [
                    partition for part in short for partition in part.topics[number].partitions
                ]

    asyncio.run(run())


def test_offsets_of_many_topics_and_of_many_partitions_of_one_are_all_told(tmp_path: Path) -> None:
    counts = {"a": 1, "b": 2_500, "c": 999, "d": 1, "e": 4_000}
    request = OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id=GroupId("g"),
                topics=tuple(
                    OffsetFetchRequestTopics(
                        name=TopicName(name), partition_indexes=tuple(range(count))
                    )
                    for name, count in counts.items()
                ),
            ),
        )
    )

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await wire.send(FindCoordinatorRequest(coordinator_keys=("g",)))
            answer: OffsetFetchResponse = await wire.send(request, 9)
            (group,) = answer.groups
            assert group.error_code == 0
            assert [
                (topic.name, [each.partition_index for each in topic.partitions])
                for topic in group.topics
            ] == [(name, list(range(count))) for name, count in counts.items()]

    asyncio.run(run())


def test_a_long_commit_is_fetched_whole_and_deleted(tmp_path: Path) -> None:
    """In every version that asks for all topics; entries that do not exist are told apart."""
    indexes = (*range(20), 5_000) * 40
    commit = OffsetCommitRequest(
        group_id=GroupId("g"),
        topics=tuple(
            OffsetCommitRequestTopic(
                name=TopicName(name),
                partitions=tuple(
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=index)
                    for index in indexes
                ),
            )
            for name in ("t", "none")
        ),
    )
    deletion = OffsetDeleteRequest(
        group_id=GroupId("g"),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ),
            )
            for topic in commit.topics
        ),
    )

    async def offsets(wire: Wire) -> list[dict[int, int]]:
        found = []
        one = await wire.send(OffsetFetchRequest(group_id=GroupId("g"), topics=None), 7)
        all_of_group = OffsetFetchRequestGroup(group_id=GroupId("g"), topics=None)
        for version, groups in ((8, 1), (10, 2)):
            answer = await wire.send(OffsetFetchRequest(groups=(all_of_group,) * groups), version)
            found += [group.topics for group in answer.groups]
        return [
            {each.partition_index: each.committed_offset for each in topic.partitions}
            for topics in (one.topics, *found)
            for topic in topics
        ]

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 20)
            await wire.send(FindCoordinatorRequest(coordinator_keys=("g",)))
            expected = {
                (name, index): 0 if name == "t" and index < 20 else 3
                for name in ("t", "none")
                for index in indexes
            }
            for request in (commit, deletion):
                answer = await wire.send(request, 9 if request is commit else 0)
                assert {
                    (topic.name, each.partition_index): each.error_code
                    for topic in answer.topics
                    for each in topic.partitions
                } == expected
                is_there = request is commit
                assert await offsets(wire) == [{n: n for n in range(20)}] * 4 * is_there

    asyncio.run(run())


def test_what_is_sent_behind_a_long_request_is_answered_behind_it(tmp_path: Path) -> None:
    versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            for _ in range(3):
                await wire.post(list_offsets(range(MANY)), 7)
                await wire.post(versions, 3)
            for _ in range(3):
                offsets = await wire.answer(ListOffsetsRequest.API_KEY, 7)
                assert isinstance(offsets, ListOffsetsResponse)
                assert len(offsets.topics[0].partitions) == MANY
                told = await wire.answer(ApiVersionsRequest.API_KEY, 3)
                assert isinstance(told, ApiVersionsResponse)

    asyncio.run(run())


def test_a_long_request_that_is_none_closes_its_connection_and_no_other(tmp_path: Path) -> None:
    frame = b"".join(encode_request(list_offsets(range(MANY)), 7, 1, "c"))
    # The last of its arrays has fewer elements than it says.
    broken = (len(frame) - 4 - 2).to_bytes(4, "big") + frame[4:-2]

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as other:
            async with await Wire.connect(node) as wire:
                await wire.send_bytes(broken)
                assert await wire.is_closed()
            assert isinstance(await other.send(ApiVersionsRequest(), 0), ApiVersionsResponse)

    asyncio.run(run())
