"""Committing, fetching and deleting offsets over the wire, and finding them after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, ProducerId, TopicName, Uuid
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
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
)
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.handlers.offsets import (
    BATCHED,
    NONE,
    TOPIC_IDS,
    Offsets,
    commit,
    fetch,
    fetch_request,
    find_coordinator,
    id_of,
    offsets,
)
from tests.server.transactions.txn_producer import PROPERTIES, TxnProducer, start_transactions
from tests.server.wire import Wire, create_topic, on_node, running_node

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def txn_commit_request(
    producer: TxnProducer, committed: Offsets, group: str = "g"
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=GroupId(group),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=tuple(
            TxnOffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=(
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    ),
                ),
            )
            for (topic, partition), offset in committed.items()
        ),
    )


async def txn_commit(
    producer: TxnProducer, committed: Offsets, group: str = "g", version: int = 5
) -> dict[tuple[str, int], ErrorCode]:
    answer = await producer.wire.send(txn_commit_request(producer, committed, group), version)
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


def test_every_version_finds_what_every_version_has_committed(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 2)
        await find_coordinator(node, wire)
        for version in COMMIT_VERSIONS:
            offset = 100 + version
            answer = await commit(
                node, wire, {("t", 1): offset}, version, metadata="m", leader_epoch=4
            )
            assert answer == {("t", 1): NONE}
            for fetch_version in FETCH_VERSIONS:
                found = await fetch(node, wire, {"t": [0, 1]}, fetch_version)
                assert found["t", 0].committed_offset == -1
                assert found["t", 0].error_code == NONE
                assert found["t", 1].committed_offset == offset
                assert found["t", 1].metadata == "m"
                knows_epochs = fetch_version >= 5 and version >= 6
                assert found["t", 1].committed_leader_epoch == (4 if knows_epochs else -1)
                if fetch_version >= 2:
                    assert await offsets(node, wire, version=fetch_version) == {("t", 1): offset}

    on_node(tmp_path, scenario, PROPERTIES)


def test_what_does_not_exist_is_refused_and_the_rest_committed(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 2)
        await find_coordinator(node, wire)

        answer = await commit(node, wire, {("t", 0): 1, ("t", 2): 2, ("no", 0): 3, ("t", 1): 4})
        assert answer == {("t", 0): NONE, ("t", 1): NONE, ("t", 2): UNKNOWN, ("no", 0): UNKNOWN}
        assert await commit(node, wire, {("no", 0): 3}) == {("no", 0): UNKNOWN}
        # What is refused as a whole is told for what exists, and only for that.
        answer = await commit(node, wire, {("t", 0): 9, ("no", 0): 3}, group="h", generation=3)
        assert answer == {("t", 0): ErrorCode.GROUP_ID_NOT_FOUND, ("no", 0): UNKNOWN}

        assert await offsets(node, wire) == {("t", 0): 1, ("t", 1): 4}

    on_node(tmp_path, scenario, PROPERTIES)


def test_an_unknown_topic_id_is_told_as_such(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 1)
        await find_coordinator(node, wire)
        await commit(node, wire, {("t", 0): 1})
        known, unknown = id_of(node, "t"), Uuid(b"?" * 16)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        for ids in ([known, unknown], [unknown]):
            answer = await wire.send(
                OffsetCommitRequest(
                    group_id=GroupId("g"),
                    topics=tuple(
                        OffsetCommitRequestTopic(topic_id=each, partitions=(partition,))
                        for each in ids
                    ),
                ),
                TOPIC_IDS,
            )
            assert {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics} == {
                each: NONE if each == known else ErrorCode.UNKNOWN_TOPIC_ID for each in ids
            }
            group = OffsetFetchRequestGroup(
                group_id=GroupId("g"),
                topics=tuple(
                    OffsetFetchRequestTopics(topic_id=each, partition_indexes=(0,)) for each in ids
                ),
            )
            answer = await wire.send(OffsetFetchRequest(groups=(group,)), TOPIC_IDS)
            found = {topic.topic_id: topic.partitions[0] for topic in answer.groups[0].topics}
            assert found[unknown].error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert found[unknown].committed_offset == -1
            if known in ids:
                assert found[known].committed_offset == 7

    on_node(tmp_path, scenario, PROPERTIES)


def test_before_there_are_coordinators_every_version_says_so(tmp_path: Path) -> None:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 1)
        for version in COMMIT_VERSIONS:
            assert await commit(node, wire, {("t", 0): 1}, version) == {("t", 0): code}
        for version in FETCH_VERSIONS:
            answer = await wire.send(fetch_request(node, version, {"t": [0]}, ["g"]), version)
            if version >= BATCHED:
                assert [one.error_code for one in answer.groups] == [code]
            elif version >= 2:
                assert (answer.error_code, answer.topics) == (code, ())
            else:
                assert answer.topics[0].partitions[0].error_code == code
                assert answer.topics[0].partitions[0].committed_offset == -1
        delete = OffsetDeleteRequest(group_id=GroupId("g"))
        assert (await wire.send(delete)).error_code == code

    on_node(tmp_path, scenario, PROPERTIES)


def test_many_groups_are_fetched_at_once(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 1)
        await find_coordinator(node, wire)
        groups = [f"group-{number}" for number in range(20)]
        for number, group in enumerate(groups):
            await commit(node, wire, {("t", 0): number}, group=group)
        assert len({node.broker.groups.partition_of(group) for group in groups}) > 1

        for version in range(BATCHED, TOPIC_IDS + 1):
            request = fetch_request(node, version, {"t": [0]}, [*groups, "nobody"])
            answer = await wire.send(request, version)
            assert {
                one.group_id: one.topics[0].partitions[0].committed_offset for one in answer.groups
            } == {**{group: number for number, group in enumerate(groups)}, "nobody": -1}
            answer = await wire.send(fetch_request(node, version, None, []), version)
            assert answer.groups == ()

    on_node(tmp_path, scenario, PROPERTIES)


def test_the_empty_group_id_may_commit_and_fetch_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 1)
        await find_coordinator(node, wire)

        assert await commit(node, wire, {("t", 0): 1}, group="") == {("t", 0): NONE}
        assert await offsets(node, wire, "") == {("t", 0): 1}
        answer = await wire.send(OffsetDeleteRequest(group_id=GroupId("")))
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
        nobody = TxnProducer(node, wire, "tx")
        nobody.producer_id, nobody.producer_epoch = ProducerId(1), 0
        assert await txn_commit(nobody, {("t", 0): 1}, "") == {("t", 0): ErrorCode.INVALID_GROUP_ID}

    on_node(tmp_path, scenario, PROPERTIES)


def test_offsets_are_deleted(tmp_path: Path) -> None:
    async def delete(wire: Wire, group: str, *partitions: tuple[str, int]) -> Any:
        return await wire.send(
            OffsetDeleteRequest(
                group_id=GroupId(group),
                topics=tuple(
                    OffsetDeleteRequestTopic(
                        name=TopicName(topic),
                        partitions=(OffsetDeleteRequestPartition(partition_index=index),),
                    )
                    for topic, index in partitions
                ),
            )
        )

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 2)
        await find_coordinator(node, wire)
        await commit(node, wire, {("t", 0): 1, ("t", 1): 2})

        answer = await delete(wire, "g", ("t", 0), ("t", 5), ("no", 0))
        assert answer.error_code == NONE
        assert {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        } == {("t", 0): NONE, ("t", 5): UNKNOWN, ("no", 0): UNKNOWN}
        assert await offsets(node, wire) == {("t", 1): 2}

        answer = await delete(wire, "nobody", ("t", 0), ("no", 0))
        assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())

    on_node(tmp_path, scenario, PROPERTIES)


def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 1)
        await create_topic(wire, "u", 1)
        await find_coordinator(node, wire)
        await commit(node, wire, {("t", 0): 1, ("u", 0): 2}, TOPIC_IDS)
        await wire.send(
            DeleteTopicsRequest(topics=(DeleteTopicState(name=TopicName("t")),), timeout_ms=5_000)
        )
        await until(lambda: node.broker.image.topic(TopicName("t")) is None)

        for version in range(2, TOPIC_IDS + 1):
            assert await offsets(node, wire, version=version) == {("u", 0): 2}
        # A new topic of that name begins anew.
        await create_topic(wire, "t", 1)
        found = await fetch(node, wire, {"t": [0]})
        assert found["t", 0].committed_offset == -1

    on_node(tmp_path, scenario, PROPERTIES)


def test_a_commit_that_is_too_large_for_the_log_is_refused(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 40)
        await find_coordinator(node, wire)
        many = {("t", index): 1 for index in range(40)}
        answer = await commit(node, wire, many, metadata="x" * 30_000)
        assert answer == dict.fromkeys(many, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert await commit(node, wire, {("t", 0): 2}) == {("t", 0): NONE}
        assert await offsets(node, wire) == {("t", 0): 2}

    on_node(tmp_path, scenario, {**PROPERTIES, "offset.metadata.max.bytes": "30000"})


def test_a_restarted_node_finds_the_offsets_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 3)
            await find_coordinator(node, wire)
            for number in range(50):
                group = f"group-{number}"
                await commit(node, wire, {("t", 0): number, ("t", 1): 5}, group=group)
                await commit(node, wire, {("t", 0): number + 1}, group=group, metadata="m")
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await find_coordinator(node, wire)
            for number in range(50):
                group = f"group-{number}"
                assert await offsets(node, wire, group) == {("t", 0): number + 1, ("t", 1): 5}
            found = await fetch(node, wire, {"t": [0]}, group="group-1")
            assert found["t", 0].metadata == "m"
            assert await commit(node, wire, {("t", 2): 7}, group="group-1") == {("t", 2): NONE}

    asyncio.run(run())


# Transactions


async def producer_on(node: Node, wire: Wire) -> TxnProducer:
    await start_transactions(node)
    await find_coordinator(node, wire)
    return await TxnProducer(node, wire, "tx").init()


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_in_a_transaction_are_unstable_until_it_ends(
    tmp_path: Path, is_commit: bool
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 2)
        producer = await producer_on(node, wire)
        await commit(node, wire, {("t", 0): 1})

        assert await txn_commit(producer, {("t", 0): 10, ("no", 0): 1}) == {
            ("t", 0): NONE,
            ("no", 0): UNKNOWN,
        }
        for version in (7, 8, 9, 10):
            found = await fetch(node, wire, {"t": [0, 1]}, version, require_stable=True)
            assert found["t", 0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert found["t", 1].error_code == NONE
        assert await offsets(node, wire) == {("t", 0): 1}

        await producer.ended(commit=is_commit)
        found = await fetch(node, wire, {"t": [0]}, require_stable=True)
        assert found["t", 0].error_code == NONE
        assert found["t", 0].committed_offset == (10 if is_commit else 1)

    on_node(tmp_path, scenario, PROPERTIES)


def test_an_old_producer_must_have_added_the_group_to_its_transaction(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 1)
        producer = await producer_on(node, wire)
        for version, code in [
            (0, ErrorCode.INVALID_TXN_STATE),
            (3, ErrorCode.INVALID_TXN_STATE),
            (4, ErrorCode.TRANSACTION_ABORTABLE),
        ]:
            assert await txn_commit(producer, {("t", 0): 1}, version=version) == {("t", 0): code}

        await producer.add_offsets("g")
        for version in range(5):
            answer = await txn_commit(producer, {("t", 0): 10 + version}, version=version)
            assert answer == {("t", 0): NONE}
        await producer.ended(commit=True, version=0)

        assert await offsets(node, wire) == {("t", 0): 14}

    on_node(tmp_path, scenario, PROPERTIES)


def test_a_fenced_producer_cannot_commit_offsets(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 1)
        old = await producer_on(node, wire)
        await TxnProducer(node, wire, "tx").init()

        assert await txn_commit(old, {("t", 0): 1}) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
        stranger = TxnProducer(node, wire, "other")
        stranger.producer_id, stranger.producer_epoch = old.producer_id, old.producer_epoch
        assert await txn_commit(stranger, {("t", 0): 1}) == {
            ("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING
        }
        assert await offsets(node, wire) == {}

    on_node(tmp_path, scenario, PROPERTIES)


@pytest.mark.parametrize("is_commit", [True, False])
def test_pending_offsets_survive_a_restart(tmp_path: Path, is_commit: bool) -> None:
    async def run() -> None:
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 1)
            producer = await producer_on(node, wire)
            await commit(node, wire, {("t", 0): 1})
            await txn_commit(producer, {("t", 0): 10})
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await find_coordinator(node, wire)
            await until(lambda: not node.broker.transactions.is_loading)
            found = await fetch(node, wire, {"t": [0]}, require_stable=True)
            assert found["t", 0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            again = TxnProducer(node, wire, "tx")
            again.producer_id = producer.producer_id
            again.producer_epoch = producer.producer_epoch
            await again.ended(commit=is_commit)
            assert await offsets(node, wire) == {("t", 0): 10 if is_commit else 1}

    asyncio.run(run())
