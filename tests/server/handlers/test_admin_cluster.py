"""What a running node tells of itself: cluster, quorum, features, log directories, coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.describe_cluster import DescribeClusterRequest
from dohle.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from dohle.server.handlers.cluster import CLUSTER_OPERATIONS
from dohle.server.node import Node
from dohle.server.registry import all_handlers
from tests.server.wire import Wire, batch, create_topic, on_node, produce

# Cluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await wire.send(request, version)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert (answer.cluster_id, answer.controller_id) == (node.cluster_id, 1)
        (broker,) = answer.brokers
        assert (broker.broker_id, broker.rack) == (1, "here")
        assert f"{broker.host}:{broker.port}" == node.bootstrap
        assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
        unasked = await wire.send(DescribeClusterRequest(), version)
        assert unasked.cluster_authorized_operations == -(2**31)

    on_node(tmp_path, scenario, {"broker.rack": "here"})


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_does_not_describe_controllers(
    tmp_path: Path, endpoint_type: int, expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(DescribeClusterRequest(endpoint_type=endpoint_type))
        assert ErrorCode(answer.error_code) is expected
        assert (answer.brokers, answer.controller_id) == ((), -1)

    on_node(tmp_path, scenario)


# Quorum


def _quorum_request(topic: str, *partitions: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=(
            DescribeQuorumRequestTopicData(
                topic_name=TopicName(topic),
                partitions=tuple(
                    DescribeQuorumRequestPartitionData(partition_index=index)
                    for index in partitions
                ),
            ),
        )
    )


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_of_one_is_described_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        answer = await wire.send(_quorum_request("__cluster_metadata", 0), version)
        (partition,) = answer.topics[0].partitions
        assert (answer.error_code, partition.error_code) == (0, 0)
        assert (partition.leader_id, partition.leader_epoch) == (1, node.controller.image.epoch)
        assert partition.high_watermark == node.controller.image.offset + 1
        (voter,) = partition.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
        assert partition.observers == ()
        if version >= 1:
            assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp > 0
        if version >= 2:
            assert voter.replica_directory_id == ZERO_UUID
            assert [one.node_id for one in answer.nodes] == [1]

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("listens", [False, True])
def test_the_quorum_names_the_addresses_at_which_its_voters_listen(
    tmp_path: Path, listens: bool
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(_quorum_request("__cluster_metadata", 0))
        bound = [one.port for one in node.listeners if one.listener.name == "CONTROLLER"]
        assert len(bound) == listens
        ((found),) = answer.nodes
        assert [(one.name, one.host, one.port) for one in found.listeners] == [
            ("CONTROLLER", "localhost", port) for port in bound
        ]

    with_controller = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://localhost:0",
        "controller.listener.names": "CONTROLLER",
    }
    on_node(tmp_path, scenario, with_controller if listens else {})


@pytest.mark.parametrize("request_", [_quorum_request("t", 0), _quorum_request("t", 1, 2)])
def test_other_partitions_have_no_quorum(tmp_path: Path, request_: DescribeQuorumRequest) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(request_)
        asked = [one.partition_index for one in request_.topics[0].partitions]
        assert answer.error_code == 0
        assert [(one.partition_index, one.error_code) for one in answer.topics[0].partitions] == [
            (index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in asked
        ]

    on_node(tmp_path, scenario)


# Features


@pytest.mark.parametrize("version", range(3))
def test_features_are_lowered_and_raised_at_every_version(tmp_path: Path, version: int) -> None:
    def update(level: int, *, downgrade: bool = False) -> UpdateFeaturesRequest:
        how = {"allow_downgrade": downgrade} if version == 0 else {"upgrade_type": 1 + downgrade}
        key = FeatureUpdateKey(feature="metadata.version", max_version_level=level, **how)
        return UpdateFeaturesRequest(feature_updates=(key,))

    async def finalized(wire: Wire) -> int:
        names = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        features = (await wire.send(names)).finalized_features
        return int({one.name: one.max_version_level for one in features}["metadata.version"])

    async def scenario(node: Node, wire: Wire) -> None:
        level = await finalized(wire)
        refused = await wire.send(update(level - 1), version)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert refused.error_message
        assert await finalized(wire) == level
        lowered = await wire.send(update(level - 1, downgrade=True), version)
        assert (lowered.error_code, lowered.error_message) == (0, None)
        assert await finalized(wire) == level - 1
        assert (await wire.send(update(level), version)).error_code == 0
        assert await finalized(wire) == level

    on_node(tmp_path, scenario)


# Log directories


@pytest.mark.parametrize("version", range(1, 5))
def test_log_directories_are_described_at_every_version(tmp_path: Path, version: int) -> None:
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", partitions=4)
        records = batch(b"x" * 100)
        await produce(wire, "t", records, partition=3)
        answer = await wire.send(DescribeLogDirsRequest(topics=None), version)
        assert answer.error_code == 0
        assert [one.log_dir for one in answer.results] == paths
        assert [one.error_code for one in answer.results] == [0, 0]
        found = [
            (topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
            for result in answer.results
            for topic in result.topics
            for one in topic.partitions
        ]
        assert sorted(found) == [
            ("t", index, len(records) if index == 3 else 0, 0, False) for index in range(4)
        ]
        assert all(len(result.topics[0].partitions) == 2 for result in answer.results)
        for result in answer.results:
            if version >= 4:
                assert result.total_bytes >= result.usable_bytes > 0
            else:
                assert (result.total_bytes, result.usable_bytes) == (-1, -1)

    on_node(tmp_path, scenario, {"log.dirs": ",".join(paths)})


def test_only_the_partitions_asked_for_are_described(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", partitions=3)
        await create_topic(wire, "u")
        asked = (
            DescribableLogDirTopic(topic=TopicName("t"), partitions=(1, 9)),
            DescribableLogDirTopic(topic=TopicName("never"), partitions=(0,)),
        )
        (result,) = (await wire.send(DescribeLogDirsRequest(topics=asked))).results
        assert [(one.name, len(one.partitions)) for one in result.topics] == [("t", 1)]
        assert result.topics[0].partitions[0].partition_index == 1
        (result,) = (await wire.send(DescribeLogDirsRequest(topics=()))).results
        assert result.topics == ()

    on_node(tmp_path, scenario)


def test_a_directory_that_went_offline_is_told_with_an_error(tmp_path: Path) -> None:
    paths = [str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "no folder")]
    (tmp_path / "no folder").write_text("a file in the way")

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", partitions=2)
        node.logs.directories[1].disk.failed("being tested", OSError("no more"))
        results = (await wire.send(DescribeLogDirsRequest(topics=None))).results
        assert [one.log_dir for one in results] == paths
        assert [one.error_code for one in results] == [
            ErrorCode.NONE,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ]
        assert [len(one.topics) for one in results] == [1, 0, 0]

    on_node(tmp_path, scenario, {"log.dirs": ",".join(paths)})


# All of them


def test_every_served_version_of_every_api_is_advertised(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        names = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        advertised = {one.api_key: one for one in (await wire.send(names)).api_keys}
        assert advertised.keys() == set(map(int, all_handlers()))
        assert (advertised[ApiKey.INIT_PRODUCER_ID].max_version) == 5
        assert advertised[ApiKey.ALTER_REPLICA_LOG_DIRS].max_version == 2

    on_node(tmp_path, scenario)
