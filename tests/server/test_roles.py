"""A node by its roles: what a controller alone serves, and what no node may do alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dohle.cli.main import main
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.metadata.metadata_version import METADATA_VERSION
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.describe_cluster import DescribeClusterRequest
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.raft.values import LeaderAndEpoch
from dohle.server.host import SystemNodeHost
from dohle.server.metrics.health import problems
from dohle.server.node import Node
from tests.server.wire import UnsyncedFileSystem, Wire

_SERVERS = "controller.quorum.bootstrap.servers"


def controller_properties(path: Path) -> dict[str, str]:
    return {
        "process.roles": "controller",
        "node.id": "7",
        _SERVERS: "localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "log.dirs": str(path / "data"),
    }


def new_node(properties: dict[str, str]) -> Node:
    config, _ = BrokerConfig.from_properties(properties)
    return Node(config, host=SystemNodeHost(files=UnsyncedFileSystem()))


def format_node(path: Path, properties: dict[str, str], *options: str) -> None:
    file = path / "node.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    assert (
        main(["storage", "format", "-c", str(file), "-t", "the-cluster-of-a-test0", *options]) == 0
    )


def test_a_controller_alone_serves_what_controllers_serve(tmp_path: Path) -> None:
    """R1: of the APIs in protocol.md 1, those of its listener: no records, no metadata."""

    async def run() -> None:
        properties = controller_properties(tmp_path)
        format_node(tmp_path, properties, "--standalone")
        for start in range(2):
            node = new_node(properties)
            await node.start()
            try:
                assert [each.listener.name for each in node.listeners] == ["CONTROLLER"]
                assert problems(node.sources) == []
                async with await Wire.connect(node) as wire:
                    await look(node, wire, start)
                async with await Wire.connect(node) as wire:
                    await wire.post(MetadataRequest(), 12)
                    assert await wire.is_closed()
            finally:
                await node.stop()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    async def look(node: Node, wire: Wire, start: int) -> None:
        asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answer = await wire.send(asked)
        served = {one.api_key for one in answer.api_keys}
        assert served.isdisjoint({ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP})
        assert served >= {ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES}
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        assert levels["kraft.version"] == 1
        assert levels[METADATA_VERSION] == node.images.image.metadata_version
        found = await wire.send(DescribeClusterRequest(endpoint_type=2))
        (controller,) = found.brokers
        assert (found.error_code, found.controller_id, controller.broker_id) == (0, 7, 7)
        assert f"{controller.host}:{controller.port}" == node.bootstrap
        topic = CreatableTopic(name=TopicName(f"t{start}"), num_partitions=1, replication_factor=1)
        (refused,) = (await wire.send(CreateTopicsRequest(topics=(topic,)))).topics
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR, "there are no brokers"

    asyncio.run(run())


def follow(properties: dict[str, str]) -> tuple[LeaderAndEpoch, int]:
    """Start a controller, and return whom it follows, and where its log ends."""

    async def run() -> tuple[LeaderAndEpoch, int]:
        node = new_node(properties)
        await node.start()
        try:
            return node.member.quorum.leader, node.member.log.end_offset
        finally:
            await node.stop()

    return asyncio.run(run())


def test_no_node_leads_alone_what_others_have_a_vote_in(tmp_path: Path) -> None:
    """R2: the voters are those of the log, whatever the node is told of others."""
    properties = controller_properties(tmp_path)
    voters = "7@a:1:JEXY6aqzQY-32P5TStzaFg,8@b:1:MvDxzVmcRsaTz33bUuRU6A"
    format_node(tmp_path, properties, "--initial-controllers", voters)
    assert follow(properties) == (LeaderAndEpoch(None, 0), 0)


def test_no_node_makes_a_quorum_of_its_own_that_was_to_join_one(tmp_path: Path) -> None:
    """R101: formatted with --no-initial-controllers, it learns all from the leader."""
    properties = controller_properties(tmp_path)
    format_node(tmp_path, properties, "--no-initial-controllers")
    assert follow(properties) == (LeaderAndEpoch(None, 0), 0)
