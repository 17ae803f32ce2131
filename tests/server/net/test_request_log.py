"""The request log tells of every request, also of those that a shortcut would serve."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.metadata.image import ResourceType
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
from dohle.server.node import Node
from tests.server.handlers.offsets import find_coordinator
from tests.server.wire import Wire, batch, create_topic, on_node, produce_request

TOPIC = "orders"
TIMES = 4
_SET = 0


def fetch_request(topic_id: Uuid) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchTopic(topic=TopicName(TOPIC), topic_id=topic_id, partitions=(partition,))
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=(topic,))


def commit_request() -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name=TopicName(TOPIC), partitions=(partition,))
    return OffsetCommitRequest(group_id=GroupId("g"), topics=(topic,))


def set_level(level: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="dohle.request", config_operation=_SET, value=level)
    resource = AlterConfigsResource(
        resource_type=ResourceType.BROKER_LOGGER, resource_name="1", configs=(config,)
    )
    return IncrementalAlterConfigsRequest(resources=(resource,))


def test_requests_that_repeat_the_one_before_are_logged_from_when_the_log_is_turned_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        topic_id = (await create_topic(wire, TOPIC)).topic_id
        await find_coordinator(node, wire)
        requests = [
            (produce_request(TOPIC, batch(b"v")), 12),
            (fetch_request(topic_id), 17),
            (commit_request(), 9),
        ]
        async with await Wire.connect(node) as other:
            for level, logged in (("INFO", 0), ("DEBUG", TIMES), ("INFO", 0)):
                altered = await other.send(set_level(level))
                assert altered.responses[0].error_code == 0
                caplog.clear()
                for _ in range(TIMES):
                    for request, version in requests:
                        await wire.send(request, version)
                lines = [record.getMessage() for record in caplog.records]
                for request, _ in requests:
                    name = type(request).__name__
                    assert sum(" test v" in line and name in line for line in lines) == logged
            (connection,) = [c for c in node.listeners[0].connections if c.shortcuts]
            kept = connection.shortcuts
            assert {*kept} == {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT}
            assert all(shortcut.served for shortcut in kept.values())

    level = logging.getLogger("dohle.request").level
    try:
        on_node(tmp_path, scenario, {"offsets.topic.replication.factor": "1"})
    finally:
        logging.getLogger("dohle.request").setLevel(level)
