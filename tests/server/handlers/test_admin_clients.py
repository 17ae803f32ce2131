"""The admin clients of confluent-kafka and kafka-python against a running node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.admin import NewPartitions as MorePartitions
from kafka.admin import NewTopic as AnotherTopic
from kafka.errors import TopicAlreadyExistsError

from dohle.core.errors import ErrorCode
from dohle.server.node import Node
from tests.server.wire import Wire, on_node

TIMEOUT_S = 20

# It says that it is typed, and exports half of its names only.
confluent: Any = import_module("confluent_kafka.admin")


def _with_client(path: Path, use: Callable[[str], None]) -> None:
    """Run a client in a thread, beside the loop that the node lives on."""

    async def scenario(node: Node, wire: Wire) -> None:
        await asyncio.to_thread(use, node.bootstrap)

    on_node(path, scenario)


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())


def test_confluent_manages_topics(tmp_path: Path) -> None:
    def use(bootstrap: str) -> None:
        admin = confluent.AdminClient({"bootstrap.servers": bootstrap})
        topic = confluent.NewTopic(
            "c", num_partitions=2, replication_factor=1, config={"segment.ms": "9000"}
        )
        admin.create_topics([topic])["c"].result(TIMEOUT_S)
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([topic])["c"].result(TIMEOUT_S)
        assert _code(refused.value) == ErrorCode.TOPIC_ALREADY_EXISTS
        admin.create_partitions([confluent.NewPartitions("c", 4)])["c"].result(TIMEOUT_S)
        assert len(admin.list_topics(timeout=TIMEOUT_S).topics["c"].partitions) == 4
        admin.delete_topics(["c"])["c"].result(TIMEOUT_S)
        assert "c" not in admin.list_topics(timeout=TIMEOUT_S).topics

    _with_client(tmp_path, use)


def test_confluent_describes_and_alters_configs(tmp_path: Path) -> None:
    def use(bootstrap: str) -> None:
        admin = confluent.AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([confluent.NewTopic("c", 1, 1)])["c"].result(TIMEOUT_S)
        resource = confluent.ConfigResource(confluent.ConfigResource.Type.TOPIC, "c")
        changed = confluent.ConfigResource(
            confluent.ConfigResource.Type.TOPIC,
            "c",
            incremental_configs=[
                confluent.ConfigEntry(
                    "retention.ms", "7000", incremental_operation=confluent.AlterConfigOpType.SET
                )
            ],
        )
        admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S)
        entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        assert entries["retention.ms"].value == "7000"
        broker = confluent.ConfigResource(confluent.ConfigResource.Type.BROKER, "1")
        entries = admin.describe_configs([broker])[broker].result(TIMEOUT_S)
        assert entries["node.id"].value == "1"
        assert entries["node.id"].is_read_only

    _with_client(tmp_path, use)


def test_confluent_deletes_the_records_of_an_idempotent_producer(tmp_path: Path) -> None:
    def use(bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for number in range(10):
            producer.produce("c", str(number).encode())
        assert producer.flush(TIMEOUT_S) == 0
        admin = confluent.AdminClient({"bootstrap.servers": bootstrap})
        before = ConfluentPartition("c", 0, 6)
        deleted = admin.delete_records([before])[before].result(TIMEOUT_S)
        assert deleted.low_watermark == 6
        partition = ConfluentPartition("c", 0)
        first = admin.list_offsets({partition: confluent.OffsetSpec.earliest()})[partition]
        assert first.result(TIMEOUT_S).offset == 6

    _with_client(tmp_path, use)


def test_confluent_describes_the_cluster(tmp_path: Path) -> None:
    def use(bootstrap: str) -> None:
        admin = confluent.AdminClient({"bootstrap.servers": bootstrap})
        cluster = admin.describe_cluster().result(TIMEOUT_S)
        assert (cluster.controller.id, [node.id for node in cluster.nodes]) == (1, [1])

    _with_client(tmp_path, use)


def test_kafka_python_manages_topics_and_configs(tmp_path: Path) -> None:
    def use(bootstrap: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            topic = AnotherTopic(name="k", num_partitions=1, replication_factor=1)
            admin.create_topics([topic])
            with pytest.raises(TopicAlreadyExistsError):
                admin.create_topics([topic])
            admin.create_partitions({"k": MorePartitions(total_count=3)})
            assert len(admin.describe_topics(["k"])[0]["partitions"]) == 3
            configs = {"retention.ms": "7000"}
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "k", configs=configs)])
            described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "k")])
            assert described["topic"]["k"]["retention.ms"]["value"] == "7000"
            assert admin.list_config_resources()["topic"] == ["k"]
            admin.delete_topics(["k"])
            assert admin.list_topics() == []
        finally:
            admin.close()

    _with_client(tmp_path, use)


def test_kafka_python_looks_into_the_node(tmp_path: Path) -> None:
    def use(bootstrap: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            admin.create_topics([AnotherTopic(name="k", num_partitions=2, replication_factor=1)])
            assert [one["broker_id"] for one in admin.describe_cluster()["brokers"]] == [1]
            quorum = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
            assert [one["replica_id"] for one in quorum["current_voters"]] == [1]
            (log_dir,) = admin.describe_log_dirs()[0]["log_dirs"]
            assert [one["name"] for one in log_dir["topics"]] == ["k"]
            partition = TopicPartition("k", 0)
            assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 0
            assert admin.describe_producers([partition])[partition].active_producers == []
            assert "metadata.version" in admin.describe_features()
        finally:
            admin.close()

    _with_client(tmp_path, use)
