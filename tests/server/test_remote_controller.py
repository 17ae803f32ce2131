"""A broker whose controller is another node, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.server.host import SystemNodeHost
from dohle.server.node import Node
from dohle.storage.directory.meta_properties import InvalidMetaProperties
from tests.ports import free_port
from tests.server.wire import UnsyncedFileSystem, Wire, batch, produce

CONTROLLER_ID, BROKER_ID = BrokerId(1), BrokerId(2)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


class Place:
    """Where the files of a controller and a broker are, and the controller's address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()

    def properties(self, node_id: int) -> dict[str, str]:
        is_controller = node_id == CONTROLLER_ID
        controller = f"127.0.0.1:{self._port}"
        return {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://{controller}"
            if is_controller
            else "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self._folder / str(node_id)),
            "broker.heartbeat.interval.ms": "200",
        }

    def format(self, node_id: int) -> None:
        file = self._folder / f"{node_id}.properties"
        pairs = self.properties(node_id).items()
        file.write_text("".join(f"{key}={value}\n" for key, value in pairs))
        assert main(["storage", "format", "-c", str(file), "-t", CLUSTER]) == 0

    def node(self, node_id: int) -> Node:
        config, _ = BrokerConfig.from_properties(self.properties(node_id))
        return Node(config, host=SystemNodeHost(files=UnsyncedFileSystem()))

    @asynccontextmanager
    async def running(self, node_id: int) -> AsyncIterator[Node]:
        node = self.node(node_id)
        await node.start()
        try:
            yield node
        finally:
            await node.stop()


def test_a_broker_lives_and_serves_beside_a_controller_on_another_node(tmp_path: Path) -> None:
    """A10-A13, A50-A52, R120: an observer that is registered, unfenced, serving, and gone."""
    place = Place(tmp_path)
    place.format(CONTROLLER_ID)
    place.format(BROKER_ID)

    async def run() -> None:
        async with place.running(CONTROLLER_ID) as controller:
            assert not controller.images.image.brokers
            async with place.running(BROKER_ID) as broker:
                registered = controller.images.image.brokers[BROKER_ID]
                assert not registered.fenced
                former = broker.broker_role.lifecycle.broker_epoch
                assert registered.epoch == former
                async with await Wire.connect(broker) as wire:
                    await use(wire)
            assert controller.images.image.brokers[BROKER_ID].fenced
            async with place.running(BROKER_ID) as again:
                assert again.broker_role.previous_epoch == former, "it stopped cleanly"
                assert again.broker_role.lifecycle.broker_epoch > former
                async with await Wire.connect(again) as wire:
                    assert (await produce(wire, "t", batch(b"b"))).base_offset == 1

    async def use(wire: Wire) -> None:
        topic = CreatableTopic(name=TopicName("t"), num_partitions=1, replication_factor=1)
        for version in (3, 7):
            created = await wire.send(CreateTopicsRequest(topics=(topic,)), version)
            assert (created.topics[0].error_code == 0) == (version == 3)
        while (await produce(wire, "t", batch(b"a"))).error_code:
            await asyncio.sleep(0.01)
        ids = await wire.send(InitProducerIdRequest(transactional_id=None))
        assert (ids.error_code, ids.producer_id) == (0, 0)
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        quorum = DescribeQuorumRequestTopicData(
            topic_name=TopicName("__cluster_metadata"), partitions=(partition,)
        )
        described = await wire.send(DescribeQuorumRequest(topics=(quorum,)))
        found = described.topics[0].partitions[0]
        assert found.leader_id == CONTROLLER_ID
        assert [one.replica_id for one in found.observers] == [BROKER_ID]
        asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        served = {one.api_key: one for one in (await wire.send(asked)).api_keys}
        assert served[ApiKey.CREATE_TOPICS].max_version == 7

    asyncio.run(run())


def test_a_node_of_several_must_be_formatted(tmp_path: Path) -> None:
    """Else it would be of a cluster of its own."""

    async def run() -> None:
        with pytest.raises(InvalidMetaProperties, match="not formatted"):
            await Place(tmp_path).node(BROKER_ID).start()
        assert list(tmp_path.iterdir()) == []

    asyncio.run(run())
