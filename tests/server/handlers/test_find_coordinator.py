from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest
from dohle.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.wire import Wire, on_node

_SHARE_KEY = "group:with:colons:AAAAAAAAAAAAAAAAAAAAAg:3"


@pytest.mark.parametrize("version", range(7))
def test_the_only_broker_coordinates_every_group(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        if version < 4:
            found = [await wire.send(FindCoordinatorRequest(key="g"), version)]
        else:
            request = FindCoordinatorRequest(coordinator_keys=("g", "h"), key_type=0)
            found = (await wire.send(request, version)).coordinators
            assert [one.key for one in found] == ["g", "h"]
        for one in found:
            assert one.error_code == ErrorCode.NONE
            assert f"{one.node_id}@{one.host}:{one.port}" == f"1@{node.bootstrap}"

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("key_type", "topic", "configs"),
    [
        (
            0,
            "__consumer_offsets",
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": "104857600",
            },
        ),
        (
            1,
            "__transaction_state",
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "unclean.leader.election.enable": "false",
                "segment.bytes": "104857600",
            },
        ),
    ],
)
def test_whoever_asks_first_creates_the_topic(
    tmp_path: Path, key_type: int, topic: str, configs: dict[str, str]
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        async with await Wire.connect(node) as other:
            request = FindCoordinatorRequest(coordinator_keys=("a",), key_type=key_type)
            answers = await asyncio.gather(wire.send(request, 4), other.send(request, 4))
        assert [one.coordinators[0].error_code for one in answers] == [0, 0]
        image = node.broker.image.topic(TopicName(topic))
        assert image is not None
        assert len(image.partitions) == 50
        resource = DescribeConfigsResource(resource_type=2, resource_name=topic)
        described = await wire.send(DescribeConfigsRequest(resources=(resource,)))
        set_here = {
            one.name: one.value for one in described.results[0].configs if one.config_source == 1
        }
        assert set_here == configs

    on_node(tmp_path, scenario)


def test_nobody_is_sent_to_a_coordinator_that_is_still_being_made(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        first = asyncio.ensure_future(wire.send(FindCoordinatorRequest(key="a"), 3))
        async with await Wire.connect(node) as other:
            await until(
                lambda: node.broker.image.topic(TopicName("__consumer_offsets")) is not None
            )
            assert (await other.send(FindCoordinatorRequest(key="b"), 3)).error_code == 0
            group = OffsetFetchRequestGroup(group_id=GroupId("b"), topics=None)
            answer = await other.send(OffsetFetchRequest(groups=(group,)), 8)
            assert ErrorCode(answer.groups[0].error_code) is ErrorCode.NONE
        await first

    on_node(tmp_path, scenario)


def test_partitions_that_are_added_take_no_group_from_its_coordinator(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await wire.send(FindCoordinatorRequest(key="g"), 3)
        groups = [f"group-{number}" for number in range(100)]
        before = [node.broker.groups.partition_of(group) for group in groups]
        name = TopicName("__consumer_offsets")
        added = CreatePartitionsTopic(name=name, count=60, assignments=None)
        answer = await wire.send(CreatePartitionsRequest(topics=(added,), timeout_ms=10_000))
        assert answer.results[0].error_code == ErrorCode.NONE, answer
        image = node.broker.image.topic(TopicName("__consumer_offsets"))
        assert image is not None
        assert len(image.partitions) == 60
        assert [node.broker.groups.partition_of(group) for group in groups] == before

    on_node(tmp_path, scenario)


def test_without_enough_brokers_for_the_topic_there_is_no_coordinator(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(FindCoordinatorRequest(key="g"), 3)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)

    on_node(tmp_path, scenario, {"offsets.topic.replication.factor": "3"})


def test_while_no_topic_can_be_created_clients_are_told_to_try_again(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        node.controller.stop()
        for _ in range(2):
            answer = await wire.send(FindCoordinatorRequest(key="g"), 3)
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    on_node(tmp_path, scenario)


def test_a_node_that_stops_begins_to_coordinate_nothing(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        node.broker.coordinators.close()
        await wire.send(FindCoordinatorRequest(key="g"), 3)
        assert node.broker.image.topic(TopicName("__consumer_offsets")) is not None
        assert not node.broker.groups.is_loading
        assert list(node.broker.groups.active()) == []

    on_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "key_type", "key", "expected"),
    [
        (1, 7, "g", ErrorCode.INVALID_REQUEST),
        (4, -1, "g", ErrorCode.INVALID_REQUEST),
        (5, 2, _SHARE_KEY, ErrorCode.INVALID_REQUEST),
        (6, 2, _SHARE_KEY, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (6, 2, "g:3", ErrorCode.INVALID_REQUEST),
        (6, 2, ":AAAAAAAAAAAAAAAAAAAAAg:3", ErrorCode.INVALID_REQUEST),
        (6, 2, "g:topic:3", ErrorCode.INVALID_REQUEST),
        (6, 2, "g:AAAAAAAAAAAAAAAAAAAAAg:x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_key_that_nobody_coordinates_is_refused(
    tmp_path: Path, version: int, key_type: int, key: str, expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        if version < 4:
            answer = await wire.send(FindCoordinatorRequest(key=key, key_type=key_type), version)
        else:
            request = FindCoordinatorRequest(coordinator_keys=(key,), key_type=key_type)
            answer = (await wire.send(request, version)).coordinators[0]
        assert ErrorCode(answer.error_code) is expected

    on_node(tmp_path, scenario)
