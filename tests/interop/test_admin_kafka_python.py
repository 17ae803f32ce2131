"""Administration through kafka-python's admin client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from dohle.testing import Broker
from tests.interop.clients import KafkaPython, Sample, Writing

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def config_of(admin: Any, topic: str, name: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = admin.describe_configs([resource], config_filter="all")
    entry: dict[str, Any] = found["topic"][topic][name]
    return entry


def test_a_topic_is_created_described_and_deleted(admin: Any, broker: Broker) -> None:
    admin.create_topics(
        {
            "kafka-python-life": {
                "num_partitions": 3,
                "replication_factor": 1,
                "configs": {"retention.ms": "86400000"},
            }
        },
        wait_for_metadata=True,
    )

    assert "kafka-python-life" in admin.list_topics()
    (described,) = admin.describe_topics(["kafka-python-life"])
    assert described["error_code"] == 0
    node_id = broker.node.config.node_id
    assert sorted(part["partition_index"] for part in described["partitions"]) == [0, 1, 2]
    assert all(part["leader_id"] == node_id for part in described["partitions"])
    assert config_of(admin, "kafka-python-life", "retention.ms")["value"] == "86400000"

    admin.delete_topics(["kafka-python-life"])
    assert "kafka-python-life" not in admin.list_topics()
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["kafka-python-life"])


def test_a_topic_with_the_defaults_of_the_broker(admin: Any) -> None:
    admin.create_topics(["kafka-python-default"])

    (described,) = admin.describe_topics(["kafka-python-default"])
    assert len(described["partitions"]) == 1


def test_refusals_are_told(admin: Any, topic: str) -> None:
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(kafka.errors.InvalidReplicationFactorError):
        admin.create_topics({"refused": {"num_partitions": 1, "replication_factor": 5}})
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        admin.create_topics({"refused": {"num_partitions": 0, "replication_factor": 1}})
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        admin.create_partitions({topic: 1})
    assert "refused" not in admin.list_topics()


def test_partitions_are_added(admin: Any, broker: Broker, topic: str) -> None:
    admin.create_partitions({topic: 3})

    KafkaPython().write(broker.bootstrap, topic, [Sample(None, b"value")], partition=2)
    found = admin.describe_topic_partitions([topic])
    (described,) = found["topics"] if isinstance(found, dict) else found
    assert len(described["partitions"]) == 3


def test_configs_of_a_topic_are_altered(admin: Any, topic: str) -> None:
    def alter(configs: dict[str, Any]) -> None:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])

    alter({"max.message.bytes": "5000", "cleanup.policy": ("append", "compact")})

    altered = config_of(admin, topic, "max.message.bytes")
    assert (altered["value"], altered["config_source"]) == ("5000", "DYNAMIC_TOPIC_CONFIG")
    assert set(config_of(admin, topic, "cleanup.policy")["value"].split(",")) == {
        "delete",
        "compact",
    }
    alter({"max.message.bytes": ("delete", None), "cleanup.policy": ("subtract", "compact")})
    assert config_of(admin, topic, "max.message.bytes")["config_source"] == "DEFAULT_CONFIG"
    assert config_of(admin, topic, "cleanup.policy")["value"] == "delete"


def test_configs_of_a_topic_are_replaced_as_a_whole(admin: Any, topic: str) -> None:
    """The older way, AlterConfigs: the client itself repeats what is to stay."""
    for configs in ({"retention.ms": "1000"}, {"max.message.bytes": "5000"}):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        admin.alter_configs([resource], incremental=False)

    assert config_of(admin, topic, "max.message.bytes")["value"] == "5000"
    assert config_of(admin, topic, "retention.ms")["value"] == "1000"


def test_configs_of_the_broker_are_altered(admin: Any, broker: Broker) -> None:
    node_id = str(broker.node.config.node_id)

    def value() -> Any:
        found = admin.describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, node_id)], config_filter="all"
        )
        entry = found["broker"][node_id]["log.retention.ms"]
        return entry["value"], entry["config_source"]

    before = value()
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.BROKER, node_id, {"log.retention.ms": "123456789"})]
    )
    assert value() == ("123456789", "DYNAMIC_BROKER_CONFIG")
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.BROKER, node_id, {"log.retention.ms": ("delete", None)})]
    )
    assert value() == before


def test_records_are_deleted(admin: Any, broker: Broker, topic: str) -> None:
    client = KafkaPython()
    client.write(broker.bootstrap, topic, [Sample(None, b"%d" % n) for n in range(10)])
    partition = kafka.TopicPartition(topic, 0)

    result = admin.delete_records({partition: 7})

    assert result[partition]["low_watermark"] == 7
    assert client.bounds(broker.bootstrap, topic) == (7, 10)
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        admin.delete_records({partition: 100})


def test_offsets_are_listed(admin: Any, broker: Broker, topic: str) -> None:
    samples = [Sample(None, b"value", (), T0 + delta) for delta in (0, 100, 50)]
    KafkaPython().write(broker.bootstrap, topic, samples)
    partition = kafka.TopicPartition(topic, 0)

    def find(spec: Any) -> int:
        offset: int = admin.list_partition_offsets({partition: spec})[partition].offset
        return offset

    assert find(kafka.OffsetSpec.EARLIEST) == 0
    assert find(kafka.OffsetSpec.LATEST) == 3
    assert find(kafka.OffsetSpec.MAX_TIMESTAMP) == 1
    assert find(T0 + 1) == 1


def test_the_cluster_is_described(admin: Any, broker: Broker) -> None:
    found = admin.describe_cluster()

    assert found["cluster_id"] == broker.node.cluster_id
    assert found["controller_id"] == broker.node.config.node_id
    assert [f"{node['host']}:{node['port']}" for node in found["brokers"]] == [broker.bootstrap]


def test_log_directories_are_described(admin: Any, broker: Broker, topic: str) -> None:
    KafkaPython().write(broker.bootstrap, topic, [Sample(None, bytes(1000))])

    (found,) = admin.describe_log_dirs([topic])

    assert found["broker"] == broker.node.config.node_id
    (directory,) = found["log_dirs"]
    assert directory["error_code"] == 0
    assert directory["log_dir"] == broker.node.config.log_dirs[0]
    (described,) = directory["topics"]
    assert described["name"] == topic
    (partition,) = described["partitions"]
    assert 1000 < partition["partition_size"] < 1200
    assert directory["total_bytes"] > directory["usable_bytes"] > 0


def test_producers_are_described(admin: Any, broker: Broker, topic: str) -> None:
    samples = [Sample(None, b"value")] * 5
    KafkaPython().write(broker.bootstrap, topic, samples, Writing(idempotent=True))
    partition = kafka.TopicPartition(topic, 0)

    state = admin.describe_producers([partition])[partition]

    (producer,) = state.active_producers
    assert producer.last_sequence == 4
    assert producer.producer_epoch == 0


def test_the_quorum_and_the_features_are_described(admin: Any, broker: Broker) -> None:
    node_id = broker.node.config.node_id

    (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert partition["leader_id"] == node_id
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [node_id]
    assert partition["observers"] == []
    assert partition["high_watermark"] == partition["current_voters"][0]["log_end_offset"] > 0

    features = admin.describe_features()
    lowest, highest = features["metadata.version"]["supported"]
    assert lowest <= features["metadata.version"]["finalized"][1] <= highest
