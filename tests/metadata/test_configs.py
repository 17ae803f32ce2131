"""AlterConfigs and IncrementalAlterConfigs."""

import pytest

from dohle.core.ids import TopicName
from dohle.core.steps import finish
from dohle.metadata.configs import ConfigOperation, alter_configs, incremental_alter_configs
from dohle.metadata.image import ResourceType
from dohle.protocol.messages import alter_configs as legacy
from dohle.protocol.messages import incremental_alter_configs as incremental
from dohle.protocol.messages.records.cluster_metadata import (
    ClearElrRecord,
    ConfigRecord,
)
from tests.metadata.cluster import Cluster, cluster

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
Change = tuple[str, int, str | None]
Outcome = tuple[int, str | None]


def with_topic() -> Cluster:
    made = cluster()
    made.create_topic("jays")
    return made


def resource(type_: int, name: str, *changes: Change) -> incremental.AlterConfigsResource:
    return incremental.AlterConfigsResource(
        resource_type=type_,
        resource_name=name,
        configs=tuple(
            incremental.AlterableConfig(name=config, config_operation=operation, value=value)
            for config, operation, value in changes
        ),
    )


def alter(
    made: Cluster, *resources: incremental.AlterConfigsResource, validate_only: bool = False
) -> list[Outcome]:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=resources, validate_only=validate_only
    )
    reply = made.commit(incremental_alter_configs(made.image, request, made.context))
    assert [(each.resource_type, each.resource_name) for each in reply.responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return [(each.error_code, each.error_message) for each in reply.responses]


def alter_topic(made: Cluster, *changes: Change) -> Outcome:
    return alter(made, resource(TOPIC, "jays", *changes))[0]


def configs(made: Cluster) -> dict[str, str]:
    return dict(made.image.topic_config(TopicName("jays")))


def test_configs_are_set_and_deleted_one_by_one() -> None:
    made = with_topic()
    assert alter_topic(made, ("retention.ms", SET, "5"), ("segment.ms", SET, "6")) == (0, None)
    assert configs(made) == {"retention.ms": "5", "segment.ms": "6"}
    assert made.delta.changed_configs[0].after == configs(made)
    assert alter_topic(made, ("retention.ms", DELETE, None), ("segment.ms", SET, "7")) == (0, None)
    assert configs(made) == {"segment.ms": "7"}


def test_what_a_topic_already_has_is_not_written_again() -> None:
    made = with_topic()
    alter_topic(made, ("retention.ms", SET, "5"))
    batches = len(made.batches)
    assert alter_topic(made, ("retention.ms", SET, "5"), ("segment.ms", DELETE, None)) == (0, None)
    assert len(made.batches) == batches


def test_lists_are_added_to_and_taken_from() -> None:
    made = with_topic()
    assert alter_topic(made, ("cleanup.policy", APPEND, "compact"))[0] == 0
    assert configs(made) == {"cleanup.policy": "delete,compact"}
    assert alter_topic(made, ("cleanup.policy", APPEND, "compact,delete"))[0] == 0
    assert configs(made) == {"cleanup.policy": "delete,compact"}
    assert alter_topic(made, ("cleanup.policy", SUBTRACT, "delete,none"))[0] == 0
    assert configs(made) == {"cleanup.policy": "compact"}


def test_a_brokers_config_is_written_even_if_it_is_the_same() -> None:
    made = cluster()
    change = resource(BROKER, "1", ("log.retention.ms", SET, "5"))
    assert alter(made, change) == alter(made, change) == [(0, None)]
    record = ConfigRecord(resource_type=4, resource_name="1", name="log.retention.ms", value="5")
    assert made.batches[-2:] == [[record], [record]]
    assert made.image.broker_config(1) == {"log.retention.ms": "5"}


def test_the_broker_without_a_name_is_all_of_them() -> None:
    made = cluster()
    assert alter(made, resource(BROKER, "", ("log.retention.ms", SET, "5"))) == [(0, None)]
    assert made.image.cluster_config() == {"log.retention.ms": "5", "min.insync.replicas": "1"}


def test_validate_only_writes_nothing() -> None:
    made = with_topic()
    good, bad = ("retention.ms", SET, "5"), ("retention.ms", SET, "x")
    request = resource(TOPIC, "jays", good)
    assert alter(made, request, validate_only=True) == [(0, None)]
    assert alter(made, resource(TOPIC, "jays", bad), validate_only=True)[0][0] == 40
    assert configs(made) == {}


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (resource(TOPIC, "jays", ("foo", SET, "1")), 40, "Unknown topic config name: foo"),
        (resource(TOPIC, "jays", ("retention.ms", SET, "x")), 40, "Invalid value x"),
        (resource(TOPIC, "jays", ("retention.ms", SET, None)), 42, "Null value not supported"),
        (resource(TOPIC, "jays", ("retention.ms", APPEND, "1")), 40, "Can't APPEND to key"),
        (resource(TOPIC, "jays", ("foo", SUBTRACT, "1")), 40, "Can't SUBTRACT to key foo"),
        (resource(TOPIC, "jays", ("retention.ms", 9, "1")), 42, "Unknown operations type 9"),
        (
            resource(TOPIC, "jays", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
            42,
            "duplicate config keys",
        ),
        (resource(TOPIC, "jays", ("compression.type", SET, "z" * 32768)), 40, "longer than"),
        (resource(TOPIC, "crows", ("retention.ms", SET, "1")), 3, "'crows' does not exist"),
        (resource(TOPIC, "", ("retention.ms", SET, "1")), 42, "Default topic resources"),
        (resource(TOPIC, "a b", ("retention.ms", SET, "1")), 17, "Topic name is invalid"),
        (resource(BROKER, "x", ("log.retention.ms", SET, "1")), 42, "must be an integer"),
        (resource(BROKER, "-", ("log.retention.ms", SET, "1")), 42, "must be an integer"),
        (resource(BROKER, "9", ("log.retention.ms", SET, "1")), 102, "No node with id 9"),
        (
            resource(BROKER, "1", ("num.partitions", SET, "1")),
            42,
            "Cannot update these configs dynamically",
        ),
        (resource(BROKER, "1", ("log.retention.ms", SET, "x")), 42, "Invalid value x"),
        (resource(BROKER, "1", ("log.retention.ms", APPEND, "x")), 40, "its type is not LIST"),
        (resource(8, "1", ("dohle", SET, "DEBUG")), 42, "Unknown resource type 8"),
        (resource(99, "1", ("dohle", SET, "DEBUG")), 42, "Unknown resource type 99"),
    ],
)
def test_what_is_refused(wanted: incremental.AlterConfigsResource, code: int, message: str) -> None:
    made = with_topic()
    before = made.image
    ((found, text),) = alter(made, wanted)
    assert found == code
    assert message in (text or "")
    assert made.image is before


def test_one_bad_resource_does_not_stop_the_others() -> None:
    made = with_topic()
    results = alter(
        made,
        resource(TOPIC, "jays", ("retention.ms", SET, "5"), ("segment.ms", SET, "x")),
        resource(BROKER, "", ("log.retention.ms", SET, "5")),
    )
    assert [code for code, _ in results] == [40, 0]
    assert configs(made) == {}
    assert made.image.cluster_config()["log.retention.ms"] == "5"


def test_a_resource_named_twice_is_altered_by_neither() -> None:
    made = with_topic()
    one = resource(TOPIC, "jays", ("retention.ms", SET, "5"))
    assert [code for code, _ in alter(made, one, one)] == [42, 42]
    assert configs(made) == {}


def test_a_config_of_another_release_is_kept_and_in_nobodys_way() -> None:
    made = with_topic()
    made.replay(ConfigRecord(resource_type=2, resource_name="jays", name="future", value="1"))
    assert alter_topic(made, ("retention.ms", SET, "5")) == (0, None)
    assert configs(made) == {"future": "1", "retention.ms": "5"}
    assert alter_topic(made, ("future", SET, "2"))[0] == 40
    assert alter_topic(made, ("future", DELETE, None)) == (0, None)
    assert configs(made) == {"retention.ms": "5"}


def test_elr_forbids_what_would_make_the_minimum_uncertain() -> None:
    """A23: 40 for a broker's own and for removing the cluster's; each change clears the ELR."""
    made = with_topic()
    name = "min.insync.replicas"
    ((code, message),) = alter(made, resource(BROKER, "1", (name, SET, "1")))
    assert (code, message) == (40, f"Broker-level {name} cannot be altered while ELR is enabled.")
    assert alter(made, resource(BROKER, "", (name, SET, "1"))) == [(0, None)]
    assert made.batches[-1][-1] == ClearElrRecord()
    assert alter(made, resource(BROKER, "", (name, DELETE, None)))[0][0] == 40
    assert alter_topic(made, (name, SET, "1")) == (0, None)
    assert made.batches[-1][-1] == ClearElrRecord(topic_name=TopicName("jays"))


def replace(made: Cluster, type_: int, name: str, **pairs: str | None) -> Outcome:
    request = legacy.AlterConfigsRequest(
        resources=(
            legacy.AlterConfigsResource(
                resource_type=type_,
                resource_name=name,
                configs=tuple(
                    legacy.AlterableConfig(name=key.replace("_", "."), value=value)
                    for key, value in pairs.items()
                ),
            ),
        )
    )
    reply = made.commit(alter_configs(made.image, request, made.context))
    return reply.responses[0].error_code, reply.responses[0].error_message


def test_the_old_api_replaces_all_configs() -> None:
    made = with_topic()
    assert replace(made, TOPIC, "jays", retention_ms="5", segment_ms="6") == (0, None)
    assert replace(made, TOPIC, "jays", segment_ms="6", flush_ms="7") == (0, None)
    assert configs(made) == {"segment.ms": "6", "flush.ms": "7"}
    assert replace(made, TOPIC, "jays") == (0, None)
    assert configs(made) == {}


def test_the_old_api_refuses_the_same() -> None:
    made = with_topic()
    assert replace(made, TOPIC, "jays", retention_ms=None)[0] == 42
    assert replace(made, TOPIC, "jays", foo="1")[0] == 40
    assert replace(made, TOPIC, "crows", retention_ms="1")[0] == 3
    assert replace(made, BROKER, "1", node_id="7")[0] == 42
    assert replace(made, 8, "1", dohle="DEBUG")[0] == 42


def test_the_old_api_can_validate_only() -> None:
    made = with_topic()
    request = legacy.AlterConfigsRequest(
        resources=(
            legacy.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="jays",
                configs=(legacy.AlterableConfig(name="retention.ms", value="5"),),
            ),
        ),
        validate_only=True,
    )
    decision = finish(alter_configs(made.image, request, made.context))
    assert decision.records == ()
    assert decision.reply.responses[0].error_code == 0
