"""Rights at a controller: of who comes to its listener, and of clients behind brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dohle.core.acls import AclOperation
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.principal import Principal
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from dohle.protocol.messages.broker_registration import BrokerRegistrationRequest
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.describe_cluster import DescribeClusterRequest
from dohle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from dohle.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from dohle.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dohle.protocol.messages.vote import VoteRequest
from dohle.protocol.schema import Request
from dohle.server.channel import Client
from dohle.server.channels.envelope import unwrap, wrap
from dohle.server.node import Node
from tests.server.guards.authorized import (
    PROPERTIES,
    Right,
    Wire,
    grant,
    make_topic,
    on_cluster,
    on_topic,
)
from tests.server.handlers.controllers import on_controller

_op = AclOperation
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_ALICE = Client(7, "app", "10.0.0.1", Principal("User", "alice"))


def _on_guarded(path: Path, scenario: Callable[[Node, Wire], Awaitable[None]]) -> None:
    on_controller(path, scenario, PROPERTIES)


@pytest.mark.parametrize(
    "request_",
    [
        BrokerHeartbeatRequest(broker_id=BrokerId(1)),
        BrokerRegistrationRequest(broker_id=BrokerId(9)),
        FetchRequest(),
        FetchSnapshotRequest(),
        VoteRequest(),
        EnvelopeRequest(request_principal=b"", client_host_address=b""),
        DescribeClusterRequest(endpoint_type=2),
    ],
    ids=lambda request: type(request).__name__,
)
def test_nobody_acts_as_a_node_without_the_right(tmp_path: Path, request_: Request) -> None:
    """Last rows of the table: CLUSTER_ACTION (DescribeCluster: ALTER), else 31."""

    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(request_)
        assert answer.error_code == _CLUSTER

    _on_guarded(tmp_path, scenario)


def _new(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=TopicName(name), num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=(topic,), validate_only=True)


def _of_alice(right: Right) -> Right:
    return right._replace(principal="User:alice", host="10.0.0.1")


def test_a_forwarded_request_has_the_rights_of_the_client_behind_it(tmp_path: Path) -> None:
    """Section 7: CLUSTER_ACTION of the connection, then the principal and address forwarded."""

    async def scenario(node: Node, wire: Wire) -> None:
        async def forwarded() -> int:
            answer: EnvelopeResponse = await wire.send(wrap(_ALICE, _new("orders")))
            assert answer.error_code == 0
            response = unwrap(_ALICE, answer, CreateTopicsResponse)
            assert isinstance(response, CreateTopicsResponse)
            return response.topics[0].error_code

        # What the broker may is not what the client may.
        await grant(node, on_cluster(_op.CLUSTER_ACTION), on_topic(_op.CREATE, "orders"))
        assert await forwarded() == _TOPIC
        await grant(node, _of_alice(on_topic(_op.CREATE, "orders"))._replace(host="10.0.0.2"))
        assert await forwarded() == _TOPIC
        await grant(node, _of_alice(on_topic(_op.CREATE, "orders")))
        assert await forwarded() == 0

    _on_guarded(tmp_path, scenario)


def test_a_client_of_the_broker_in_the_same_process_is_asked_for_its_rights(
    tmp_path: Path,
) -> None:
    """Section 7: a single node has no envelope, but the same rights."""

    async def scenario(node: Node, wire: Wire) -> None:
        (bound,) = [one for one in node.listeners if one.listener.name == "PLAINTEXT"]
        async with await Wire.connect(f"127.0.0.1:{bound.port}") as client:
            answer = await client.send(_new("orders"))
            assert answer.topics[0].error_code == _TOPIC
            await grant(node, on_topic(_op.CREATE, "orders"))
            answer = await client.send(_new("orders"))
            assert answer.topics[0].error_code == 0
        answer = await wire.send(_new("orders"))
        assert answer.topics[0].error_code == 0

    _on_guarded(tmp_path, scenario)


def test_the_loggers_of_a_controller_take_another_right(tmp_path: Path) -> None:
    """Row "IncrementalAlterConfigs": loggers on a controller: CLUSTER_ACTION C."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        loggers = AlterConfigsResource(resource_type=8, resource_name="1")
        request = IncrementalAlterConfigsRequest(resources=(loggers,), validate_only=True)
        await grant(node, on_cluster(_op.ALTER_CONFIGS))
        assert (await wire.send(request)).responses[0].error_code == _CLUSTER
        await grant(node, on_cluster(_op.CLUSTER_ACTION))
        assert (await wire.send(request)).responses[0].error_code == 0
        described = DescribeConfigsRequest(
            resources=(DescribeConfigsResource(resource_type=2, resource_name="orders"),)
        )
        assert (await wire.send(described)).results[0].error_code == _TOPIC

    _on_guarded(tmp_path, scenario)
