"""Consumer groups (KIP-848) over the wire: requests, what is wrong with them, and a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName
from dohle.metadata.image import ResourceType
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dohle.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dohle.protocol.messages.list_groups import ListGroupsRequest
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.wire import Wire, create_topic, on_node, running_node

GROUP = GroupId("g")
PROPERTIES = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}
NONE = ErrorCode.NONE


async def find_coordinator(node: Node, wire: Wire) -> None:
    answer = await wire.send(FindCoordinatorRequest(coordinator_keys=(GROUP,)))
    assert answer.coordinators[0].error_code == NONE
    await until(lambda: not node.broker.groups.is_loading)


def request(epoch: int = 0, **changes: Any) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat; one that joins tells all that it has to."""
    fields: dict[str, Any] = {"group_id": GROUP, "member_id": "one", "member_epoch": epoch}
    if epoch == 0:
        fields |= {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": (TopicName("topic"),),
            "topic_partitions": (),
        }
    return ConsumerGroupHeartbeatRequest(**{**fields, **changes})


async def beat(wire: Wire, epoch: int = 0, **changes: Any) -> ConsumerGroupHeartbeatResponse:
    answer = await wire.send(request(epoch, **changes))
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == NONE, answer
    return answer


def granted(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if answer.assignment is None:
        return None
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


async def describe(wire: Wire, *groups: str, version: int = 1, **more: Any) -> list[DescribedGroup]:
    names = tuple(GroupId(group) for group in groups)
    asked = ConsumerGroupDescribeRequest(group_ids=names, **more)
    return list((await wire.send(asked, version)).groups)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_stays_and_leaves(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "topic", 3)
        await find_coordinator(node, wire)
        joined = await wire.send(request(), version)
        assert (joined.error_code, joined.error_message) == (NONE, None)
        assert (joined.member_id, joined.member_epoch) == ("one", 1)
        assert joined.heartbeat_interval_ms == 5_000
        assert granted(joined) == [0, 1, 2]
        stayed = await wire.send(request(1), version)
        assert (stayed.error_code, stayed.member_epoch, stayed.assignment) == (NONE, 1, None)
        (described,) = await describe(wire, GROUP, version=version)
        assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
        (member,) = described.members
        assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
        assert member.assignment.topic_partitions[0].topic_name == "topic"
        assert member.member_type == (1 if version else -1)
        left = await wire.send(request(-1), version)
        assert (left.error_code, left.member_epoch) == (NONE, -1)
        assert (await describe(wire, GROUP))[0].group_state == "Empty"
        unknown = await wire.send(request(1), version)
        assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert unknown.error_message

    on_node(tmp_path, scenario, PROPERTIES)


def test_two_members_share_a_topic_and_a_restart_keeps_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "topic", 4)
            await find_coordinator(node, wire)
            topic_id = node.broker.image.topics[TopicName("topic")].id
            assert granted(await beat(wire)) == [0, 1, 2, 3]
            assert granted(await beat(wire, member_id="two")) == []
            kept = granted(await beat(wire, 1)) or []
            assert len(kept) == 2
            owned = (TopicPartitions(topic_id=topic_id, partitions=tuple(kept)),)
            assert (await beat(wire, 1, topic_partitions=owned)).member_epoch == 2
            rest = granted(await beat(wire, 2, member_id="two")) or []
            assert sorted(kept + rest) == [0, 1, 2, 3]
            before = await describe(wire, GROUP)
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await find_coordinator(node, wire)
            assert await describe(wire, GROUP) == before
            assert before[0].group_state == "Stable"
            assert (await beat(wire, 2)).assignment is None

    asyncio.run(run())


def test_new_partitions_are_assigned_with_the_next_heartbeat(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "topic", 1)
        await find_coordinator(node, wire)
        await beat(wire)
        more = CreatePartitionsTopic(name=TopicName("topic"), count=2, assignments=None)
        await wire.send(CreatePartitionsRequest(topics=(more,), timeout_ms=1_000))
        answer = await beat(wire, 1)
        assert (answer.member_epoch, granted(answer)) == (2, [0, 1])

    on_node(tmp_path, scenario, PROPERTIES)


def test_a_subscription_by_an_expression_finds_its_topics(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "topic", 1)
        await find_coordinator(node, wire)
        changes: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "to.*"}
        epoch = (await beat(wire, **changes)).member_epoch
        while (answer := await beat(wire, epoch)).assignment is None:
            await asyncio.sleep(0)
        assert (answer.member_epoch, granted(answer)) == (2, [0])
        broken = await wire.send(request(subscribed_topic_regex="("))
        assert broken.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    on_node(tmp_path, scenario, PROPERTIES)


def test_a_silent_member_is_put_out(tmp_path: Path) -> None:
    properties = {
        **PROPERTIES,
        "group.consumer.min.session.timeout.ms": "1",
        "group.consumer.session.timeout.ms": "50",
        "group.consumer.min.heartbeat.interval.ms": "1",
        "group.consumer.heartbeat.interval.ms": "10",
    }

    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        await beat(wire)
        machine = next(m for _, m in node.broker.groups.active() if GROUP in m.context.groups)
        await until(lambda: machine.context.groups[GROUP].is_empty)

    on_node(tmp_path, scenario, properties)


def test_offsets_are_committed_in_the_members_epoch(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "topic", 1)
        await find_coordinator(node, wire)
        await beat(wire)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topic = OffsetCommitRequestTopic(name=TopicName("topic"), partitions=(partition,))
        for epoch, version, code in (
            (1, 9, NONE),
            (2, 9, ErrorCode.STALE_MEMBER_EPOCH),
            (1, 8, ErrorCode.UNSUPPORTED_VERSION),
        ):
            asked = OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=epoch,
                member_id="one",
                topics=(topic,),
            )
            answer = await wire.send(asked, version)
            assert answer.topics[0].partitions[0].error_code == code

    on_node(tmp_path, scenario, PROPERTIES)


@pytest.mark.parametrize(
    ("changes", "version", "code"),
    [
        ({"group_id": ""}, 1, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, 1, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, 1, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "epoch": 1}, 0, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "epoch": -1}, 0, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, 1, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, 1, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, 1, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, 1, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": (TopicPartitions(),)}, 1, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, 1, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, 1, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, 1, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "random"}, 1, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 1}, 1, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_refused(
    tmp_path: Path, changes: dict[str, Any], version: int, code: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        answer = await wire.send(request(**changes), version)
        assert ErrorCode(answer.error_code) is code
        assert answer.error_message

    on_node(tmp_path, scenario, PROPERTIES)


def test_before_v1_the_server_gives_a_member_its_id(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        answer = await wire.send(request(member_id=""), 0)
        assert answer.error_code == NONE
        assert len(answer.member_id) == 22

    on_node(tmp_path, scenario, PROPERTIES)


def test_without_a_coordinator_a_heartbeat_is_to_be_tried_again(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(request())
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    on_node(tmp_path, scenario, PROPERTIES)


def test_describing_tells_of_each_group_what_is_wrong(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        await beat(wire)
        found = await describe(wire, GROUP, "", "no", include_authorized_operations=True)
        assert [(group.group_id, group.error_code) for group in found] == [
            (GROUP, NONE),
            ("", ErrorCode.INVALID_GROUP_ID),
            ("no", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert found[0].authorized_operations == 0b1101_0100_1000
        assert found[1].authorized_operations == -(2**31)
        listed = await wire.send(ListGroupsRequest(types_filter=("consumer",)))
        assert [(group.group_id, group.group_type) for group in listed.groups] == [
            (GROUP, "consumer")
        ]

    on_node(tmp_path, scenario, PROPERTIES)


def test_the_feature_is_finalized_and_switches_the_protocol(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        versions = await wire.send(
            ApiVersionsRequest(client_software_name="c", client_software_version="1")
        )
        finalized = {one.name: one.max_version_level for one in versions.finalized_features}
        assert finalized["group.version"] == 1
        advertised = {one.api_key: one.max_version for one in versions.api_keys}
        assert advertised[ApiKey.CONSUMER_GROUP_HEARTBEAT] == 1
        assert advertised[ApiKey.CONSUMER_GROUP_DESCRIBE] == 1
        await beat(wire)
        off = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        answer = await wire.send(UpdateFeaturesRequest(feature_updates=(off,), timeout_ms=1_000))
        assert answer.error_code == NONE
        assert (await wire.send(request(1))).error_code == ErrorCode.UNSUPPORTED_VERSION
        (described,) = await describe(wire, GROUP)
        assert described.error_code == ErrorCode.UNSUPPORTED_VERSION

    on_node(tmp_path, scenario, PROPERTIES)


def test_a_broker_may_be_configured_without_the_protocol(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        assert (await wire.send(request())).error_code == ErrorCode.UNSUPPORTED_VERSION

    on_node(tmp_path, scenario, {**PROPERTIES, "group.coordinator.rebalance.protocols": "classic"})


def test_a_group_may_have_its_own_timeouts(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        assert (await beat(wire)).heartbeat_interval_ms == 5_000
        name = "consumer.heartbeat.interval.ms"
        for text, code in (("7000", NONE), ("99999", ErrorCode.INVALID_CONFIG)):
            config = AlterableConfig(name=name, config_operation=0, value=text)
            resource = AlterConfigsResource(
                resource_type=ResourceType.GROUP, resource_name=GROUP, configs=(config,)
            )
            answer = await wire.send(IncrementalAlterConfigsRequest(resources=(resource,)))
            assert answer.responses[0].error_code == code
        assert (await beat(wire, 1)).heartbeat_interval_ms == 7_000
        asked = DescribeConfigsResource(
            resource_type=ResourceType.GROUP, resource_name=GROUP, configuration_keys=None
        )
        (found,) = (await wire.send(DescribeConfigsRequest(resources=(asked,)))).results
        shown = {one.name: (one.value, one.config_source) for one in found.configs}
        assert shown.pop(name) == ("7000", 8)
        assert shown["consumer.session.timeout.ms"] == ("45000", 5)
        assert {source for _, source in shown.values()} == {5}

    on_node(tmp_path, scenario, PROPERTIES)
