"""Admin requests to a node whose disk fails: every resource is answered with its error."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.image import ResourceType
from dohle.protocol.messages import alter_configs as legacy
from dohle.protocol.messages import incremental_alter_configs as incremental
from dohle.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from dohle.protocol.schema import Request
from dohle.server.node import Node
from tests.server.wire import UnsyncedFileSystem, Wire, create_topic, on_node, running_node

T = TopicName("t")
_SET = incremental.AlterableConfig(name="retention.ms", config_operation=0, value="1")


@pytest.mark.parametrize(
    ("request_", "codes", "expected"),
    [
        (
            CreateTopicsRequest(
                topics=(
                    CreatableTopic(name=TopicName("new"), num_partitions=1, replication_factor=1),
                )
            ),
            lambda answer: [(one.name, one.error_code) for one in answer.topics],
            [("new", ErrorCode.KAFKA_STORAGE_ERROR)],
        ),
        (
            DeleteTopicsRequest(timeout_ms=5_000, topics=(DeleteTopicState(name=T),)),
            lambda answer: [(one.name, one.topic_id, one.error_code) for one in answer.responses],
            [("t", ZERO_UUID, ErrorCode.KAFKA_STORAGE_ERROR)],
        ),
        (
            CreatePartitionsRequest(
                timeout_ms=5_000, topics=(CreatePartitionsTopic(name=T, count=2, assignments=None),)
            ),
            lambda answer: [(one.name, one.error_code) for one in answer.results],
            [("t", ErrorCode.KAFKA_STORAGE_ERROR)],
        ),
        (
            legacy.AlterConfigsRequest(
                resources=(
                    legacy.AlterConfigsResource(
                        resource_type=ResourceType.TOPIC,
                        resource_name="t",
                        configs=(legacy.AlterableConfig(name="retention.ms", value="1"),),
                    ),
                    legacy.AlterConfigsResource(
                        resource_type=ResourceType.BROKER, resource_name="2"
                    ),
                )
            ),
            lambda answer: [(one.resource_name, one.error_code) for one in answer.responses],
            [("t", ErrorCode.KAFKA_STORAGE_ERROR), ("2", ErrorCode.INVALID_REQUEST)],
        ),
        (
            incremental.IncrementalAlterConfigsRequest(
                resources=(
                    incremental.AlterConfigsResource(
                        resource_type=ResourceType.TOPIC, resource_name="t", configs=(_SET,)
                    ),
                )
            ),
            lambda answer: [(one.resource_name, one.error_code) for one in answer.responses],
            [("t", ErrorCode.KAFKA_STORAGE_ERROR)],
        ),
        (
            UpdateFeaturesRequest(
                feature_updates=(
                    FeatureUpdateKey(
                        feature="metadata.version", max_version_level=28, upgrade_type=2
                    ),
                )
            ),
            lambda answer: answer.error_code,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ),
        (
            InitProducerIdRequest(transactional_id=None),
            lambda answer: (answer.error_code, answer.producer_id),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1),
        ),
    ],
)
def test_what_the_metadata_log_cannot_take_is_answered_with_an_error(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    request_: Request,
    codes: Callable[[Any], Any],
    expected: object,
) -> None:
    fs = UnsyncedFileSystem()

    async def run() -> None:
        async with running_node(tmp_path, fs=fs) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            fs.sync_error = OSError(errno.EIO, "the disk is broken")
            answer = await wire.send(request_)
            fs.sync_error = None
            assert codes(answer) == expected

    with caplog.at_level(logging.CRITICAL, "dohle.server"):
        asyncio.run(run())
    assert "the metadata log cannot be used any more" in caplog.text


def test_partitions_of_an_offline_directory_answer_with_a_storage_error(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        (partition,) = node.broker.partitions.of_topic(T).values()
        partition.log.disk.failed("being tested", OSError("no more"))
        records = DeleteRecordsRequest(
            topics=(
                DeleteRecordsTopic(
                    name=T, partitions=(DeleteRecordsPartition(partition_index=0, offset=0),)
                ),
            )
        )
        deleted = (await wire.send(records)).topics[0].partitions[0]
        assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        producers = DescribeProducersRequest(topics=(TopicRequest(name=T, partition_indexes=(0,)),))
        described = (await wire.send(producers)).topics[0].partitions[0]
        assert described.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert described.error_message

    # The first partition goes to the first directory; the metadata log is not in it.
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    on_node(tmp_path, scenario, {"log.dirs": ",".join(paths), "metadata.log.dir": paths[1]})
