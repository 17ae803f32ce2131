"""What the controller is asked: every request is a message, and every answer can be sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName
from dohle.core.uuid import random_uuid
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.apis import find_api
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from dohle.protocol.messages.records.cluster_metadata import ConfigRecord
from dohle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from dohle.protocol.schema import Request, Response
from dohle.server.channel import ControllerChannel
from dohle.server.internal_topics import CONSUMER_OFFSETS, InternalTopics
from dohle.server.lifecycle import BrokerLifecycle
from dohle.server.node import Node
from dohle.server.quorum.commands import COMMANDS
from dohle.server.transactions.producer_ids import ProducerIds
from tests.server.faults import until
from tests.server.wire import Wire, create_topic, on_node, running_node

R = TypeVar("R", bound=Response)


class EncodingChannel:
    """A channel on which nothing passes but bytes, as on one to another process."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        if version is None:
            version = request.VERSIONS.highest
        received = type(request).from_bytes(version, request.encode(version))
        response = await self._channel.send(received, answer, version)
        return answer.from_bytes(version, response.encode(version))


@pytest.mark.parametrize("request_type", COMMANDS, ids=lambda each: each.__name__)
def test_every_request_is_answered_at_every_version_also_by_a_controller_that_has_stopped(
    tmp_path: Path, request_type: type[Request]
) -> None:
    answer = find_api(request_type.API_KEY).response()
    versions = range(request_type.VERSIONS.lowest, request_type.VERSIONS.highest + 1)

    async def scenario(node: Node, _: Wire) -> None:
        channel = EncodingChannel(node.controller)
        for version in versions:
            assert type(await channel.send(request_type(), answer, version)) is answer
        node.controller.stop()
        for version in versions:
            assert type(await channel.send(request_type(), answer, version)) is answer

    on_node(tmp_path, scenario)


def test_a_change_that_no_record_can_hold_is_refused_and_does_not_end_the_node(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, _: Wire) -> None:
        end_offset = node.controller.quorum.next_offset
        record = ConfigRecord(resource_type=2, resource_name="t", name="n", value="x" * 40_000)
        with pytest.raises(KafkaError, match="cannot be recorded: ConfigRecord"):
            await node.controller.write([VersionedRecord(record, 0)])
        assert node.controller.quorum.next_offset == end_offset
        ids = ProducerIds(node.images, node.controller, node.config.node_id)
        assert await ids.next() == 0

    on_node(tmp_path, scenario)


def test_what_a_broker_asks_for_survives_the_way_to_another_process(tmp_path: Path) -> None:
    async def scenario(node: Node, _: Wire) -> None:
        channel = EncodingChannel(node.controller)
        ids = ProducerIds(node.images, channel, node.config.node_id)
        assert [await ids.next() for _ in range(2)] == [0, 1]
        topics = InternalTopics(node.broker.loop, node.config, node.images, channel)
        await topics.ensure(CONSUMER_OFFSETS)
        assert topics.has(CONSUMER_OFFSETS)

    on_node(tmp_path, scenario, {"offsets.topic.num.partitions": "2"})


def lifecycle_of(node: Node, broker_id: int) -> BrokerLifecycle:
    """Return another broker of the node's cluster, which is on another machine."""
    config = node.config
    values = type(config.values)(config.values)
    values["node.id"] = broker_id
    return BrokerLifecycle(
        node.broker.loop,
        replace(config, values=values),
        node.cluster_id,
        random_uuid(node.broker.rng),
        node.images,
        EncodingChannel(node.controller),
        on_fatal=pytest.fail,
    )


def test_a_broker_registers_is_unfenced_and_goes_by_messages_alone(tmp_path: Path) -> None:
    async def scenario(node: Node, _: Wire) -> None:
        life = lifecycle_of(node, 2)
        await life.register(
            node.config.advertised_listeners, [random_uuid(node.broker.rng)], previous_epoch=-1
        )
        registered = node.images.image.brokers[BrokerId(2)]
        assert (registered.fenced, registered.epoch) == (True, life.broker_epoch)
        await life.unfence()
        assert not node.images.image.brokers[BrokerId(2)].fenced
        await life.shut_down()
        assert node.images.image.brokers[BrokerId(2)].fenced
        reply = await node.controller.send(
            UnregisterBrokerRequest(broker_id=BrokerId(2)), UnregisterBrokerResponse
        )
        assert reply.error_code == 0
        assert set(node.images.image.brokers) == {1}

    on_node(tmp_path, scenario)


def test_a_broker_of_another_cluster_is_not_registered(tmp_path: Path) -> None:
    async def scenario(node: Node, _: Wire) -> None:
        request = BrokerRegistrationRequest(broker_id=BrokerId(2), cluster_id="another")
        reply = await node.controller.send(request, BrokerRegistrationResponse)
        assert reply.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert set(node.images.image.brokers) == {1}

    on_node(tmp_path, scenario)


def test_requests_are_decided_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    def create(partitions: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=TopicName("t"), num_partitions=partitions, replication_factor=1)
        return CreateTopicsRequest(topics=(topic,))

    async def scenario(node: Node, _: Wire) -> None:
        replies = await asyncio.gather(
            *(node.controller.send(create(count), CreateTopicsResponse) for count in (3, 1, 2))
        )
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        assert [reply.topics[0].error_code for reply in replies] == [0, exists, exists]
        assert len(node.images.image.topics[TopicName("t")].partitions) == 3

    on_node(tmp_path, scenario)


def test_a_request_that_nobody_waits_for_any_more_is_carried_out(tmp_path: Path) -> None:
    async def scenario(node: Node, _: Wire) -> None:
        topic = CreatableTopic(name=TopicName("t"), num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=(topic,))
        async with node.controller._turn:
            sent = asyncio.ensure_future(node.controller.send(request, CreateTopicsResponse))
            await until(lambda: node.controller.waiting_count == 1)
            sent.cancel()
        await until(lambda: node.images.image.topic(TopicName("t")) is not None)

    on_node(tmp_path, scenario)


def test_the_quorum_is_described_while_a_command_is_carried_out(tmp_path: Path) -> None:
    async def scenario(node: Node, _: Wire) -> None:
        async with node.controller._turn:
            await node.controller.send(DescribeQuorumRequest(), DescribeQuorumResponse)

    on_node(tmp_path, scenario)


def test_after_a_clean_stop_a_broker_tells_the_epoch_of_its_former_life(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            former = node.images.image.brokers[BrokerId(1)].epoch
        async with running_node(tmp_path) as node:
            assert node.broker_role.previous_epoch == former
            stopped = node.images.image.brokers[BrokerId(1)]
            assert (stopped.fenced, stopped.in_controlled_shutdown) == (False, False)
            assert stopped.epoch > former

    asyncio.run(run())
