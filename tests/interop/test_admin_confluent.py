"""Administration through confluent-kafka's admin_api.AdminClient."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import confluent_kafka
import pytest

from dohle.testing import Broker
from tests.interop.clients import Confluent, OffsetIsOutOfRange, Reading, Sample
from tests.interop.conftest import NewTopic

# The module re-exports its classes in a way that a type checker does not follow.
admin_api: Any = import_module("confluent_kafka.admin")

DEADLINE_S = 20
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Any:
    return admin_api.AdminClient({"bootstrap.servers": broker.bootstrap})


def done(futures: dict[Any, Any]) -> Any:
    """Return the one result."""
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def failure(futures: dict[Any, Any]) -> str:
    """Return the name of the one error."""
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        done(futures)
    name: str = caught.value.args[0].name()
    return name


def describe(admin: Any, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = done(
        admin.describe_configs(
            [admin_api.ConfigResource(admin_api.ConfigResource.Type.TOPIC, topic)]
        )
    )
    return found


def test_a_topic_is_created_described_and_deleted(admin: Any, broker: Broker) -> None:
    new = admin_api.NewTopic("confluent-life", 3, 1, config={"retention.ms": "86400000"})
    done(admin.create_topics([new]))

    listed = admin.list_topics(timeout=DEADLINE_S)
    assert sorted(listed.topics["confluent-life"].partitions) == [0, 1, 2]
    described = done(admin.describe_topics(confluent_kafka.TopicCollection(["confluent-life"])))
    assert described.name == "confluent-life"
    assert not described.is_internal
    node_id = broker.node.config.node_id
    for partition in described.partitions:
        assert partition.leader.id == node_id
        assert [node.id for node in partition.replicas] == [node_id]
        assert [node.id for node in partition.isr] == [node_id]
    assert describe(admin, "confluent-life")["retention.ms"].value == "86400000"

    done(admin.delete_topics(["confluent-life"]))
    assert "confluent-life" not in admin.list_topics(timeout=DEADLINE_S).topics
    assert failure(admin.delete_topics(["confluent-life"])) == "UNKNOWN_TOPIC_OR_PART"


def test_a_deleted_topic_comes_back_empty(admin: Any, broker: Broker) -> None:
    client = Confluent()
    for value in (b"first life", b"second life"):
        done(admin.create_topics([admin_api.NewTopic("confluent-again", 1, 1)]))
        assert client.write(broker.bootstrap, "confluent-again", [Sample(None, value)]) == [0]
        received = client.read(broker.bootstrap, "confluent-again", 1)
        assert [each.sample.value for each in received] == [value]
        done(admin.delete_topics(["confluent-again"]))


def test_a_topic_can_be_tried_out_without_being_created(admin: Any) -> None:
    done(admin.create_topics([admin_api.NewTopic("confluent-trial", 1, 1)], validate_only=True))

    assert "confluent-trial" not in admin.list_topics(timeout=DEADLINE_S).topics


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (admin_api.NewTopic("bad/name", 1, 1), "TOPIC_EXCEPTION"),
        (admin_api.NewTopic("x" * 250, 1, 1), "TOPIC_EXCEPTION"),
        (admin_api.NewTopic("refused", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (
            admin_api.NewTopic("refused", 1, 1, config={"no.such.config": "1"}),
            "INVALID_CONFIG",
        ),
        (
            admin_api.NewTopic("refused", 1, 1, config={"retention.ms": "soon"}),
            "INVALID_CONFIG",
        ),
        (
            admin_api.NewTopic("refused", 1, replica_assignment=[[99]]),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
    ],
    ids=["name", "long-name", "replication", "unknown-config", "config-value", "assignment"],
)
def test_an_impossible_topic_is_refused(admin: Any, new: Any, error: str) -> None:
    assert failure(admin.create_topics([new])) == error
    assert "refused" not in admin.list_topics(timeout=DEADLINE_S).topics


def test_a_topic_that_exists_is_refused(admin: Any, topic: str) -> None:
    assert failure(admin.create_topics([admin_api.NewTopic(topic, 1, 1)])) == "TOPIC_ALREADY_EXISTS"


def test_replicas_may_be_assigned_by_hand(admin: Any, broker: Broker) -> None:
    node_id = broker.node.config.node_id
    new = admin_api.NewTopic("confluent-assigned", 2, replica_assignment=[[node_id], [node_id]])
    done(admin.create_topics([new]))

    listed = admin.list_topics(timeout=DEADLINE_S).topics["confluent-assigned"]
    assert {partition.leader for partition in listed.partitions.values()} == {node_id}
    assert len(listed.partitions) == 2


def test_partitions_are_added(admin: Any, broker: Broker, topic: str) -> None:
    client = Confluent()
    client.write(broker.bootstrap, topic, [Sample(None, b"before")])

    done(admin.create_partitions([admin_api.NewPartitions(topic, 4)]))

    client.write(broker.bootstrap, topic, [Sample(None, b"after")], partition=3)
    received = client.read(broker.bootstrap, topic, 2, partitions=range(4))
    assert {(each.partition, each.sample.value) for each in received} == {
        (0, b"before"),
        (3, b"after"),
    }
    assert (
        failure(admin.create_partitions([admin_api.NewPartitions(topic, 2)]))
        == "INVALID_PARTITIONS"
    )


def test_configs_of_a_topic_are_altered_one_by_one(admin: Any, topic: str) -> None:
    before = describe(admin, topic)
    assert before["max.message.bytes"].is_default
    assert before["cleanup.policy"].value == "delete"

    def change(name: str, operation: Any, value: str | None) -> None:
        entry = admin_api.ConfigEntry(name, value, incremental_operation=operation)
        resource = admin_api.ConfigResource(
            admin_api.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
        )
        done(admin.incremental_alter_configs([resource]))

    change("max.message.bytes", admin_api.AlterConfigOpType.SET, "5000")
    altered = describe(admin, topic)["max.message.bytes"]
    assert (altered.value, altered.is_default) == ("5000", False)
    assert altered.source == admin_api.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    change("cleanup.policy", admin_api.AlterConfigOpType.APPEND, "compact")
    policy = describe(admin, topic)["cleanup.policy"].value
    assert set((policy or "").split(",")) == {"delete", "compact"}
    change("cleanup.policy", admin_api.AlterConfigOpType.SUBTRACT, "compact")
    assert describe(admin, topic)["cleanup.policy"].value == "delete"
    change("max.message.bytes", admin_api.AlterConfigOpType.DELETE, None)
    restored = describe(admin, topic)["max.message.bytes"]
    assert (restored.value, restored.is_default) == (before["max.message.bytes"].value, True)


def test_an_altered_config_takes_effect_at_once(admin: Any, broker: Broker, topic: str) -> None:
    client = Confluent()
    large = [Sample(None, bytes(5000))]
    client.write(broker.bootstrap, topic, large)
    entry = admin_api.ConfigEntry(
        "max.message.bytes", "1000", incremental_operation=admin_api.AlterConfigOpType.SET
    )
    resource = admin_api.ConfigResource(
        admin_api.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
    )
    done(admin.incremental_alter_configs([resource]))

    with pytest.raises(confluent_kafka.KafkaException) as caught:
        client.write(broker.bootstrap, topic, large)

    assert caught.value.args[0].name() == "MSG_SIZE_TOO_LARGE"


@pytest.mark.parametrize(
    ("name", "value"), [("retention.ms", "soon"), ("no.such.config", "1"), ("segment.bytes", "-5")]
)
def test_an_impossible_config_is_refused(admin: Any, topic: str, name: str, value: str) -> None:
    entry = admin_api.ConfigEntry(
        name, value, incremental_operation=admin_api.AlterConfigOpType.SET
    )
    resource = admin_api.ConfigResource(
        admin_api.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
    )

    assert failure(admin.incremental_alter_configs([resource])) == "INVALID_CONFIG"


def test_configs_of_a_broker_are_described(admin: Any, broker: Broker) -> None:
    node_id = str(broker.node.config.node_id)
    found = done(
        admin.describe_configs(
            [admin_api.ConfigResource(admin_api.ConfigResource.Type.BROKER, node_id)]
        )
    )

    assert found["node.id"].value == node_id
    assert found["node.id"].is_read_only
    assert found["log.retention.hours"].value == "168"
    assert found["listeners"].value == "PLAINTEXT://127.0.0.1:0"


def test_a_read_only_config_of_the_broker_is_refused(admin: Any, broker: Broker) -> None:
    entry = admin_api.ConfigEntry(
        "node.id", "77", incremental_operation=admin_api.AlterConfigOpType.SET
    )
    resource = admin_api.ConfigResource(
        admin_api.ConfigResource.Type.BROKER,
        str(broker.node.config.node_id),
        incremental_configs=[entry],
    )

    assert failure(admin.incremental_alter_configs([resource])) == "INVALID_REQUEST"


def test_records_are_deleted_up_to_an_offset(admin: Any, broker: Broker, topic: str) -> None:
    client = Confluent()
    client.write(broker.bootstrap, topic, [Sample(None, b"%d" % n) for n in range(10)])

    deleted = done(admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 4)]))

    assert deleted.low_watermark == 4
    assert client.bounds(broker.bootstrap, topic) == (4, 10)
    with pytest.raises(OffsetIsOutOfRange):
        client.read(broker.bootstrap, topic, 1, Reading(3, reset="none"))
    received = client.read(broker.bootstrap, topic, 6, Reading(3, reset="earliest"))
    assert [each.offset for each in received] == [4, 5, 6, 7, 8, 9]
    beyond = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 11)])
    assert failure(beyond) == "OFFSET_OUT_OF_RANGE"
    everything = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, -1)])
    assert done(everything).low_watermark == 10


def test_offsets_are_listed_by_every_kind_of_time(admin: Any, broker: Broker, topic: str) -> None:
    times = [T0, T0 + 100, T0 + 50]
    samples = [Sample(None, b"value", (), timestamp_ms) for timestamp_ms in times]
    Confluent().write(broker.bootstrap, topic, samples)

    def find(spec: Any) -> tuple[int, int]:
        found = done(admin.list_offsets({confluent_kafka.TopicPartition(topic, 0): spec}))
        return found.offset, found.timestamp

    assert find(admin_api.OffsetSpec.earliest())[0] == 0
    assert find(admin_api.OffsetSpec.latest())[0] == 3
    assert find(admin_api.OffsetSpec.max_timestamp()) == (1, T0 + 100)
    assert find(admin_api.OffsetSpec.for_timestamp(T0 + 1)) == (1, T0 + 100)


def test_the_cluster_is_described(admin: Any, broker: Broker) -> None:
    found = admin.describe_cluster(request_timeout=DEADLINE_S).result(DEADLINE_S)

    assert found.cluster_id == broker.node.cluster_id
    assert found.controller.id == broker.node.config.node_id
    assert [f"{node.host}:{node.port}" for node in found.nodes] == [broker.bootstrap]


def test_many_topics_in_one_request_each_get_their_own_answer(
    admin: Any, new_topic: NewTopic
) -> None:
    existing = new_topic()
    futures = admin.create_topics(
        [admin_api.NewTopic(name, 1, 1) for name in ("confluent-good", existing, "bad name")]
    )

    futures["confluent-good"].result(DEADLINE_S)
    errors = {name: failure({name: futures[name]}) for name in (existing, "bad name")}
    assert errors == {existing: "TOPIC_ALREADY_EXISTS", "bad name": "TOPIC_EXCEPTION"}
