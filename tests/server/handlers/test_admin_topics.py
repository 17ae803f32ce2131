"""CreateTopics, DeleteTopics and CreatePartitions against a running node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dohle.server.node import Node
from tests.server.wire import Wire, batch, create_topic, on_node, produce, running_node


def _topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=TopicName(name),
        num_partitions=partitions,
        replication_factor=replicas,
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


async def _partition_count(wire: Wire, name: str) -> int | ErrorCode:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=TopicName(name)),), allow_auto_topic_creation=False
    )
    topic = (await wire.send(request)).topics[0]
    return ErrorCode(topic.error_code) if topic.error_code else len(topic.partitions)


def test_a_created_topic_takes_records_at_once(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        response = await wire.send(CreateTopicsRequest(topics=(_topic("made", 3),)))
        created = response.topics[0]
        assert (created.error_code, created.name) == (0, "made")
        assert created.topic_id != ZERO_UUID
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        assert (await produce(wire, "made", batch(b"x"), partition=2)).base_offset == 0

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topics = (_topic("made", 2, retention_ms="1000"), _topic("bad/name"))
        response = await wire.send(CreateTopicsRequest(topics=topics), version)
        made, bad = response.topics
        assert (made.error_code, made.error_message) == (0, None)
        assert (bad.name, bad.error_code) == ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert "bad/name" in bad.error_message
        if version >= 5:
            values = {config.name: config.value for config in made.configs}
            assert values["retention.ms"] == "1000"
            assert values["segment.bytes"] == "1073741824"
        assert await _partition_count(wire, "made") == 2

    on_node(tmp_path, scenario)


def test_minus_one_takes_the_brokers_defaults(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        response = await wire.send(CreateTopicsRequest(topics=(_topic("made", -1, -1),)))
        assert response.topics[0].num_partitions == 4
        assert await _partition_count(wire, "made") == 4

    on_node(tmp_path, scenario, {"num.partitions": "4"})


def test_validate_only_writes_nothing(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        before = node.controller.image
        request = CreateTopicsRequest(topics=(_topic("made"), _topic("a b")), validate_only=True)
        made, bad = (await wire.send(request)).topics
        assert (made.error_code, made.num_partitions) == (0, 1)
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert node.controller.image is before

    on_node(tmp_path, scenario)


def test_a_manual_assignment_is_followed_or_refused(tmp_path: Path) -> None:
    def assigned(name: str, *replicas: tuple[int, ...]) -> CreatableTopic:
        return CreatableTopic(
            name=TopicName(name),
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                CreatableReplicaAssignment(
                    partition_index=index, broker_ids=tuple(map(BrokerId, ids))
                )
                for index, ids in enumerate(replicas)
            ),
        )

    async def scenario(node: Node, wire: Wire) -> None:
        topics = (assigned("here", (1,), (1,)), assigned("nowhere", (7,)))
        here, nowhere = (await wire.send(CreateTopicsRequest(topics=topics))).topics
        assert (here.error_code, here.num_partitions) == (0, 2)
        assert nowhere.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (_topic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (_topic("ta.ken_"), ErrorCode.NONE),
        (_topic("dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (_topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (_topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (_topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (_topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (_topic("t", no_such_config="1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_created_is_refused(
    tmp_path: Path, topic: CreatableTopic, expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "taken")
        await create_topic(wire, "dotted.name")
        result = (await wire.send(CreateTopicsRequest(topics=(topic,)))).topics[0]
        assert ErrorCode(result.error_code) is expected
        assert (result.error_message is None) == (expected is ErrorCode.NONE)

    on_node(tmp_path, scenario)


def test_a_name_given_twice_is_refused_and_the_others_are_created(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = CreateTopicsRequest(topics=(_topic("twice"), _topic("once"), _topic("twice")))
        errors = {one.name: one.error_code for one in (await wire.send(request)).topics}
        assert errors == {"once": 0, "twice": ErrorCode.INVALID_REQUEST}

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "gone")
        names = (TopicName("gone"), TopicName("never"))
        if version < 6:
            request = DeleteTopicsRequest(timeout_ms=5_000, topic_names=names)
        else:
            request = DeleteTopicsRequest(
                timeout_ms=5_000, topics=tuple(DeleteTopicState(name=n) for n in names)
            )
        gone, never = (await wire.send(request, version)).responses
        assert (gone.name, gone.error_code) == ("gone", 0)
        assert never.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await _partition_count(wire, "gone") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = await produce(wire, "gone", batch(b"x"))
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    on_node(tmp_path, scenario)


def test_topics_are_deleted_by_id(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = (await create_topic(wire, "gone")).topic_id
        request = DeleteTopicsRequest(
            timeout_ms=5_000, topics=(DeleteTopicState(name=None, topic_id=topic_id),)
        )
        gone = (await wire.send(request)).responses[0]
        assert (gone.name, gone.topic_id, gone.error_code) == ("gone", topic_id, 0)
        again = (await wire.send(request)).responses[0]
        assert again.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "expected"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_can_be_switched_off(tmp_path: Path, version: int, expected: ErrorCode) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "stays")
        request = DeleteTopicsRequest(timeout_ms=5_000, topic_names=(TopicName("stays"),))
        assert (await wire.send(request, version)).responses[0].error_code == expected
        assert await _partition_count(wire, "stays") == 1

    on_node(tmp_path, scenario, {"delete.topic.enable": "false"})


def test_a_topic_made_again_after_its_deletion_is_empty(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        first = await create_topic(wire, "again")
        await produce(wire, "again", batch(b"a", b"b"))
        await wire.send(
            DeleteTopicsRequest(
                timeout_ms=5_000, topics=(DeleteTopicState(name=TopicName("again")),)
            )
        )
        second = await create_topic(wire, "again")
        assert second.topic_id != first.topic_id
        assert (await produce(wire, "again", batch(b"c"))).base_offset == 0

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "grows")
        topics = (
            CreatePartitionsTopic(name=TopicName("grows"), count=3, assignments=None),
            CreatePartitionsTopic(name=TopicName("never"), count=3, assignments=None),
        )
        grows, never = (
            await wire.send(CreatePartitionsRequest(timeout_ms=5_000, topics=topics), version)
        ).results
        assert (grows.error_code, grows.error_message) == (0, None)
        assert never.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await _partition_count(wire, "grows") == 3
        assert (await produce(wire, "grows", batch(b"x"), partition=2)).error_code == 0

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("count", "assignments", "expected"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (4, ((1,),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, ((7,),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1,),), ErrorCode.NONE),
    ],
)
def test_partitions_can_only_be_added(
    tmp_path: Path, count: int, assignments: tuple[tuple[int]] | None, expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "grows", partitions=2)
        given = assignments and tuple(
            CreatePartitionsAssignment(broker_ids=tuple(map(BrokerId, ids))) for ids in assignments
        )
        topic = CreatePartitionsTopic(name=TopicName("grows"), count=count, assignments=given)
        result = (
            await wire.send(CreatePartitionsRequest(timeout_ms=5_000, topics=(topic,)))
        ).results[0]
        assert ErrorCode(result.error_code) is expected
        assert await _partition_count(wire, "grows") == (3 if expected is ErrorCode.NONE else 2)

    on_node(tmp_path, scenario)


def test_adding_partitions_can_be_tried_without_effect(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "stays")
        topic = CreatePartitionsTopic(name=TopicName("stays"), count=3, assignments=None)
        request = CreatePartitionsRequest(timeout_ms=5_000, topics=(topic,), validate_only=True)
        assert (await wire.send(request)).results[0].error_code == 0
        assert await _partition_count(wire, "stays") == 1

    on_node(tmp_path, scenario)


def test_topics_are_there_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            topic_id = (await create_topic(wire, "kept", partitions=2)).topic_id
            await create_topic(wire, "dropped")
            await produce(wire, "kept", batch(b"a", b"b"))
            dropped = DeleteTopicState(name=TopicName("dropped"))
            await wire.send(DeleteTopicsRequest(timeout_ms=5_000, topics=(dropped,)))
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            kept = node.controller.image.topic(TopicName("kept"))
            assert kept is not None
            assert kept.id == topic_id
            assert await _partition_count(wire, "kept") == 2
            assert await _partition_count(wire, "dropped") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await produce(wire, "kept", batch(b"c"))).base_offset == 2

    asyncio.run(run())


def test_requests_sent_in_one_go_are_answered_in_their_order(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for name in ("a", "b", "c"):
            await wire.post(CreateTopicsRequest(topics=(_topic(name),)), 7)
            await wire.post(MetadataRequest(topics=()), 12)
        for name in ("a", "b", "c"):
            created = await wire.answer(CreateTopicsRequest.API_KEY, 7)
            assert [(one.name, one.error_code) for one in created.topics] == [(name, 0)]
            await wire.answer(MetadataRequest.API_KEY, 12)

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_command_that_may_not_wait_at_all_is_not_carried_out(
    tmp_path: Path, timeout_ms: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "old")
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        creation = CreateTopicsRequest(
            topics=(CreatableTopic(name=TopicName("new"), num_partitions=1, replication_factor=1),),
            timeout_ms=timeout_ms,
        )
        assert (await wire.send(creation)).topics[0].error_code == timed_out
        growth = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=TopicName("old"), count=2, assignments=None),),
            timeout_ms=timeout_ms,
        )
        assert (await wire.send(growth)).results[0].error_code == timed_out
        deletion = DeleteTopicsRequest(
            topics=(DeleteTopicState(name=TopicName("old")),), timeout_ms=timeout_ms
        )
        assert (await wire.send(deletion)).responses[0].error_code == timed_out
        topics = node.controller.image.topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"old": 1}

    on_node(tmp_path, scenario)


def test_a_command_whose_turn_comes_too_late_is_not_carried_out(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic = CreatableTopic(name=TopicName("late"), num_partitions=1, replication_factor=1)
        async with node.controller._turn:
            answer = await wire.send(CreateTopicsRequest(topics=(topic,), timeout_ms=1))
        assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert node.controller.image.topic(TopicName("late")) is None
        assert (await create_topic(wire, "late")).error_code == 0

    on_node(tmp_path, scenario)
