"""A node with an authorizer, and its ACLs: all clients of a plaintext listener are ANONYMOUS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dohle.core.acls import ANY, AclOperation, AclPermission, AclResourceType, PatternType
from dohle.core.config.authorizer import STANDARD_AUTHORIZER
from dohle.core.ids import TopicName
from dohle.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dohle.server.node import Node
from tests.server.wire import Wire, on_node

ANONYMOUS = "User:ANONYMOUS"
PROPERTIES = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Right(NamedTuple):
    """What is allowed, or denied."""

    kind: AclResourceType
    name: str
    operation: AclOperation
    pattern: PatternType = PatternType.LITERAL
    principal: str = ANONYMOUS
    host: str = ANY
    deny: bool = False


def on_topic(operation: AclOperation, name: str = "orders") -> Right:
    """Return a right on a topic."""
    return Right(AclResourceType.TOPIC, name, operation)


def on_group(operation: AclOperation, name: str = "billing") -> Right:
    """Return a right on a group."""
    return Right(AclResourceType.GROUP, name, operation)


def on_transaction(operation: AclOperation, name: str = "payments") -> Right:
    """Return a right on a transactional id."""
    return Right(AclResourceType.TRANSACTIONAL_ID, name, operation)


def on_cluster(operation: AclOperation) -> Right:
    """Return a right on the cluster."""
    return Right(AclResourceType.CLUSTER, "kafka-cluster", operation)


async def grant(node: Node, *rights: Right) -> None:
    """Add ACLs, without asking whether one may."""
    request = CreateAclsRequest(
        creations=tuple(
            AclCreation(
                resource_type=each.kind,
                resource_name=each.name,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=AclPermission.DENY if each.deny else AclPermission.ALLOW,
            )
            for each in rights
        )
    )
    answer = await node.controller.send(request, CreateAclsResponse)
    assert {each.error_code for each in answer.results} <= {0}, answer


async def revoke(node: Node) -> None:
    """Remove all ACLs."""
    everything = DeleteAclsFilter(
        resource_type_filter=AclResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    request = DeleteAclsRequest(filters=(everything,))
    answer = await node.controller.send(request, DeleteAclsResponse)
    assert answer.filter_results[0].error_code == 0


async def make_topic(node: Node, name: str, partitions: int = 1) -> None:
    """Create a topic, without asking whether one may."""
    topic = CreatableTopic(name=TopicName(name), num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=(topic,))
    answer = await node.controller.send(request, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


def on_guarded_node(
    path: Path, scenario: object, properties: Mapping[str, str] | None = None
) -> None:
    """Run a scenario against a node that has an authorizer."""
    on_node(path, scenario, {**PROPERTIES, **(properties or {})})  # type: ignore[arg-type]


__all__ = [
    "ANONYMOUS",
    "PROPERTIES",
    "Right",
    "Wire",
    "grant",
    "make_topic",
    "on_cluster",
    "on_group",
    "on_guarded_node",
    "on_topic",
    "on_transaction",
    "revoke",
]
