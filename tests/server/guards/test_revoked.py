"""Rights that are taken away: the shortcuts obey at once, and the audit log tells."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dohle.core.acls import AclOperation
from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.server.net.connection import Connection
from dohle.server.node import Node
from tests.server.guards.authorized import (
    Right,
    Wire,
    grant,
    make_topic,
    on_cluster,
    on_group,
    on_guarded_node,
    on_topic,
    revoke,
)
from tests.server.wire import batch, produce_request

_op = AclOperation
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TOPIC_FETCH = FetchTopic(
    topic=TopicName("orders"), partitions=(FetchPartition(partition_max_bytes=1000),)
)
_FETCH = FetchRequest(
    max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=(_TOPIC_FETCH,)
)
_COMMIT = OffsetCommitRequest(
    group_id=GroupId("billing"),
    topics=(
        OffsetCommitRequestTopic(
            name=TopicName("orders"), partitions=(OffsetCommitRequestPartition(),)
        ),
    ),
)


def _served(node: Node, key: ApiKey) -> int:
    """Return how many requests the shortcut of the only connection has served."""
    (connection,) = _connections(node)
    shortcut = connection.shortcuts.get(key)
    return 0 if shortcut is None else shortcut.served


def _connections(node: Node) -> list[Connection]:
    return [each for listener in node.listeners for each in listener.connections]


def test_produce_requests_are_refused_when_the_right_is_gone(tmp_path: Path) -> None:
    """Section 3: a fast path must not outlive a revoked right."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        request = produce_request("orders", batch(b"x"))
        for _ in range(2):
            await grant(node, on_topic(_op.WRITE))
            # After a refusal nothing is learnt for a while.
            for _ in range(20):
                answer = await wire.send(request, 12)
                assert answer.responses[0].partition_responses[0].error_code == 0
            assert _served(node, ApiKey.PRODUCE) > 0
            await revoke(node)
            answer = await wire.send(request, 12)
            assert answer.responses[0].partition_responses[0].error_code == _TOPIC

    on_guarded_node(tmp_path, scenario)


def test_a_producer_comes_to_no_other_topic_by_its_shortcut(tmp_path: Path) -> None:
    """Section 3, and row "Produce": the shortcut is asked about topics it has not seen."""

    async def scenario(node: Node, wire: Wire) -> None:
        for topic in ("orders", "more", "hidden"):
            await make_topic(node, topic)
        await grant(node, on_topic(_op.WRITE), on_topic(_op.WRITE, "more"))
        for names, code in (
            (("orders",), 0),
            (("orders", "more"), 0),
            (("more", "orders"), 0),
            (("hidden",), _TOPIC),
            (("orders", "hidden"), _TOPIC),
        ):
            data = PartitionProduceData(index=0, records=batch(b"x"))
            topics = tuple(
                TopicProduceData(name=TopicName(name), partition_data=(data,)) for name in names
            )
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=topics)
            answer = await wire.send(request, 12)
            told = {each.name: each.partition_responses[0].error_code for each in answer.responses}
            assert told[TopicName(names[-1])] == code
            assert told.get(TopicName("orders"), 0) == 0
        hidden = node.broker.partitions.get(TopicName("hidden"), 0)
        assert hidden is not None
        assert hidden.log.log_end_offset == 0

    on_guarded_node(tmp_path, scenario)


def test_nothing_is_learnt_of_a_topic_that_the_broker_does_not_know_yet(tmp_path: Path) -> None:
    """Section 3: who knows the id first would read and write by a shortcut without any right."""
    unknown = Uuid(bytes(range(16)))
    part = FetchPartition(partition_max_bytes=1000)
    fetch = _FETCH.replace(topics=(FetchTopic(topic_id=unknown, partitions=(part,)),))
    data = PartitionProduceData(index=0, records=batch(b"x"))
    topic = TopicProduceData(topic_id=unknown, partition_data=(data,))
    produce = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))

    async def scenario(node: Node, wire: Wire) -> None:
        fetched = await wire.send(fetch, 13)
        produced = await wire.send(produce, 13)
        codes = {
            fetched.responses[0].partitions[0].error_code,
            produced.responses[0].partition_responses[0].error_code,
        }
        assert codes == {ErrorCode.UNKNOWN_TOPIC_ID}
        (connection,) = _connections(node)
        assert not connection.shortcuts

    on_guarded_node(tmp_path, scenario)


def test_fetches_are_refused_when_the_right_is_gone(tmp_path: Path) -> None:
    """Section 3: the same for the shortcut of fetches."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        await grant(node, on_topic(_op.WRITE), on_topic(_op.READ))
        await wire.send(produce_request("orders", batch(b"x")), 12)
        for _ in range(3):
            answer = await wire.send(_FETCH, 12)
            assert answer.responses[0].partitions[0].error_code == 0
        assert _served(node, ApiKey.FETCH) > 0
        await grant(node, on_topic(_op.READ)._replace(deny=True))
        answer = await wire.send(_FETCH, 12)
        assert answer.responses[0].partitions[0].error_code == _TOPIC
        assert not answer.responses[0].partitions[0].records

    on_guarded_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("denied", "code"),
    [
        (on_topic(_op.READ), _TOPIC),
        (on_group(_op.READ), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_commits_are_refused_when_a_right_is_gone(
    tmp_path: Path, denied: Right, code: ErrorCode
) -> None:
    """Section 3: the same for the shortcut of commits."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        await node.broker.coordinators.internal_topics.ensure(TopicName("__consumer_offsets"))
        await grant(node, on_group(_op.READ), on_topic(_op.READ))
        for _ in range(4):
            answer = await wire.send(_COMMIT, 9)
            assert answer.topics[0].partitions[0].error_code == 0
        assert _served(node, ApiKey.OFFSET_COMMIT) > 0
        await grant(node, denied._replace(deny=True))
        answer = await wire.send(_COMMIT, 9)
        assert answer.topics[0].partitions[0].error_code == code

    on_guarded_node(tmp_path, scenario)


def test_a_denial_is_told_and_a_permission_if_it_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Line "Audit log": denied INFO, allowed DEBUG, with the rule; the shortcut hides nothing."""
    name = "kafka.authorizer.logger"

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        request = produce_request("orders", batch(b"x"))
        caplog.set_level(logging.INFO, name)
        await wire.send(request, 12)
        assert caplog.messages == [
            "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 127.0.0.1 on"
            " resource = Topic:LITERAL:orders for request = Produce with resourceRefCount = 1"
            " based on rule DefaultDeny"
        ]
        await grant(node, on_topic(_op.WRITE))
        for _ in range(3):
            await wire.send(request, 12)
        assert len(caplog.messages) == 1
        caplog.set_level(logging.DEBUG, name)
        caplog.clear()
        for _ in range(3):
            await wire.send(request, 12)
        assert len(caplog.messages) == 3
        assert caplog.messages[0].startswith(
            "Principal = User:ANONYMOUS is Allowed operation = WRITE"
        )
        assert "MatchingAcl(acl=StandardAcl(resourceType=TOPIC" in caplog.messages[0]

    caplog.set_level(logging.CRITICAL)
    on_guarded_node(tmp_path, scenario)


def test_the_audit_log_is_one_of_the_loggers_of_the_broker(tmp_path: Path) -> None:
    """Line "Audit log": its level is altered as that of any logger (KIP-412)."""
    name = "kafka.authorizer.logger"

    async def scenario(node: Node, wire: Wire) -> None:
        await grant(node, on_cluster(_op.ALTER_CONFIGS))
        level = AlterableConfig(name=name, config_operation=0, value="DEBUG")
        loggers = AlterConfigsResource(resource_type=8, resource_name="1", configs=(level,))
        request = IncrementalAlterConfigsRequest(resources=(loggers,))
        assert (await wire.send(request)).responses[0].error_code == 0
        assert logging.getLogger(name).level == logging.DEBUG

    try:
        on_guarded_node(tmp_path, scenario)
    finally:
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_a_right_may_be_bound_to_an_address(tmp_path: Path) -> None:
    """Line "Match": host."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        request = produce_request("orders", batch(b"x"))
        await grant(node, on_topic(_op.WRITE)._replace(host="127.0.0.2"))
        answer = await wire.send(request, 12)
        assert answer.responses[0].partition_responses[0].error_code == _TOPIC
        await grant(node, on_topic(_op.WRITE)._replace(host="127.0.0.1"))
        answer = await wire.send(request, 12)
        assert answer.responses[0].partition_responses[0].error_code == 0

    on_guarded_node(tmp_path, scenario)


def test_acls_outlive_a_restart(tmp_path: Path) -> None:
    """Section 6: ACLs are records of the metadata log."""

    async def before(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        await grant(node, on_topic(_op.WRITE))

    async def after(node: Node, wire: Wire) -> None:
        answer = await wire.send(produce_request("orders", batch(b"x")), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0

    on_guarded_node(tmp_path, before)
    on_guarded_node(tmp_path, after)


def test_a_super_user_may_do_everything(tmp_path: Path) -> None:
    """Line "super.users": semicolon-separated."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        await grant(node, on_topic(_op.ALL)._replace(deny=True))
        answer = await wire.send(produce_request("orders", batch(b"x")), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0

    properties = {"super.users": "User:CN=admin,O=x;User:ANONYMOUS"}
    on_guarded_node(tmp_path, scenario, properties)


def test_what_has_no_acl_may_be_open_to_everyone(tmp_path: Path) -> None:
    """Line "Decision": allow.everyone.if.no.acl.found."""

    async def scenario(node: Node, wire: Wire) -> None:
        await make_topic(node, "orders")
        answer = await wire.send(produce_request("orders", batch(b"x")), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
        await grant(node, on_topic(_op.WRITE)._replace(principal="User:other"))
        answer = await wire.send(produce_request("orders", batch(b"x")), 12)
        assert answer.responses[0].partition_responses[0].error_code == _TOPIC

    on_guarded_node(tmp_path, scenario, {"allow.everyone.if.no.acl.found": "true"})
