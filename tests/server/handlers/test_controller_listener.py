"""What is served on a listener of ``controller.listener.names``."""

from __future__ import annotations

from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.protocol.apis import ApiKey, ListenerType, find_api
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.describe_cluster import DescribeClusterRequest
from dohle.protocol.messages.metadata import MetadataRequest
from dohle.server.node import Node
from dohle.server.registry import controller_handlers
from tests.server.handlers.controllers import on_controller
from tests.server.wire import Wire, create_topic


def test_the_apis_are_those_that_kafka_declares_for_controllers(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answer = await wire.send(request)
        told = {ApiKey(one.api_key) for one in answer.api_keys}
        assert told == controller_handlers(node.member.quorum.take).keys()
        declared = {key for key in ApiKey if ListenerType.CONTROLLER in find_api(key).listeners}
        assert told == declared
        of_brokers = {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP}
        assert told.isdisjoint(of_brokers)
        assert {one.name for one in answer.supported_features} >= {"kraft.version"}

    on_controller(tmp_path, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_the_controllers_are_described_at_the_listener_that_is_used(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(DescribeClusterRequest(endpoint_type=2), version)
        assert (answer.error_code, answer.endpoint_type) == (0, 2)
        assert (answer.cluster_id, answer.controller_id) == (node.cluster_id, 1)
        (bound,) = [one for one in node.listeners if one.listener.name == "CONTROLLER"]
        (found,) = answer.brokers
        assert (found.broker_id, found.host, found.port) == (BrokerId(1), "127.0.0.1", bound.port)

    on_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "endpoint_type", "expected"),
    [
        (0, 1, ErrorCode.INVALID_REQUEST),
        (1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (2, 9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_controller_does_not_describe_brokers(
    tmp_path: Path, version: int, endpoint_type: int, expected: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        answer = await wire.send(request, version)
        assert ErrorCode(answer.error_code) is expected
        assert answer.brokers == ()

    on_controller(tmp_path, scenario)


def test_a14_before_controllers_register_they_do_not_describe_themselves(tmp_path: Path) -> None:
    """Kafka's answer below metadata.version 15 (3.7-IV0)."""
    data = str(tmp_path / "data")
    assert main(["storage", "format", "--data", data, "--release-version", "3.6"]) == 0

    async def scenario(node: Node, wire: Wire) -> None:
        assert node.images.image.metadata_version == 14
        answer = await wire.send(DescribeClusterRequest(endpoint_type=2))
        assert ErrorCode(answer.error_code) is ErrorCode.UNSUPPORTED_VERSION
        assert (answer.brokers, answer.controller_id) == ((), -1)

    on_controller(tmp_path, scenario)


def test_what_brokers_send_on_is_decided_here_too_and_what_they_serve_is_not(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "made-here")
        assert [topic.name for topic in node.images.image.topics.values()] == ["made-here"]
        with pytest.raises((EOFError, ConnectionError)):
            await wire.send(MetadataRequest(topics=None))

    on_controller(tmp_path, scenario)
