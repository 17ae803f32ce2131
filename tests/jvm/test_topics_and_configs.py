"""kafka-topics and kafka-configs."""

from __future__ import annotations

from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.tools import Tools, see


def _configs(tools: Tools, *arguments: str) -> list[tuple[str, str]]:
    """Return the lines of kafka-configs, each as the config and where it comes from."""
    parts = (
        line.strip().partition(" sensitive=false synonyms=")
        for line in tools.configs(*arguments).lines
    )
    return [(config, synonyms) for config, _, synonyms in parts]


def test_a_topic_is_described_as_it_was_made(tools: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(3, "--config", "retention.ms=100000000")
    head, *partitions = tools.topics("--describe", "--topic", topic).lines
    name, topic_id, *rest = head.split("\t")
    assert name == f"Topic: {topic}"
    assert len(topic_id) == len("TopicId: ") + 22
    configs = "Configs: min.insync.replicas=1,retention.ms=100000000"
    assert rest == ["PartitionCount: 3", "ReplicationFactor: 1", configs]
    assert [line.split("\t")[2:6] for line in partitions] == [
        [f"Partition: {number}", "Leader: 1", "Replicas: 1", "Isr: 1"] for number in range(3)
    ]
    assert topic in tools.topics("--list").lines
    assert tools.topics("--describe", "--under-replicated-partitions").out == ""


def test_a_topic_grows_and_goes(tools: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    tools.topics("--alter", "--topic", topic, "--partitions", "4")
    see(lambda: "PartitionCount: 4" in tools.topics("--describe", "--topic", topic).out, True)
    tools.topics("--delete", "--topic", topic)
    see(lambda: topic in tools.topics("--list").lines, False)


def test_what_cannot_be_done_to_a_topic_is_explained(tools: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    for arguments, reason in [
        (["--create", "--topic", topic], f"Topic '{topic}' already exists."),
        (
            ["--create", "--topic", topic.replace(".", "_")],
            f"Topic '{topic.replace('.', '_')}' collides with existing topic: {topic}",
        ),
        (
            ["--create", "--topic", "new", "--replica-assignment", "2,1"],
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            ["--alter", "--topic", topic, "--partitions", "2"],
            f"The topic {topic} currently has 4 partition(s); 2 would not be an increase.",
        ),
    ]:
        ran = tools.attempt("org.apache.kafka.tools.TopicCommand", *arguments)
        assert ran.code == 1
        assert f"Error while executing topic command : {reason}\n" in ran.out


def test_the_configs_of_a_topic_are_altered_and_described(
    tools: Tools, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    alter = ["--alter", "--topic", topic]
    assert tools.configs(*alter, "--add-config", "retention.ms=1000,max.message.bytes=2000").lines
    described = ["--describe", "--topic", topic]
    see(
        lambda: _configs(tools, *described),
        [
            (f"Dynamic configs for topic {topic} are:", ""),
            (
                "max.message.bytes=2000",
                "{DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, "
                "DEFAULT_CONFIG:message.max.bytes=1048588}",
            ),
            ("retention.ms=1000", "{DYNAMIC_TOPIC_CONFIG:retention.ms=1000}"),
        ],
    )
    tools.configs(*alter, "--delete-config", "retention.ms")
    default = ("retention.ms=604800000", "{}")
    see(lambda: default in _configs(tools, *described, "--all"), True)
    policy = ("cleanup.policy=delete", "{DEFAULT_CONFIG:log.cleanup.policy=delete}")
    assert policy in _configs(tools, *described, "--all")


#: Eligible leaders depend on it, so a new cluster has set it for all brokers.
MINIMUM = ("min.insync.replicas=1", "{DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}")


def test_the_configs_of_brokers_are_altered_and_described(tools: Tools) -> None:
    broker = ["--entity-type", "brokers", "--entity-name", "1"]
    everyone = ["--entity-type", "brokers", "--entity-default"]
    tools.configs("--alter", *broker, "--add-config", "log.retention.ms=123456789")
    tools.configs("--alter", *everyone, "--add-config", "log.segment.bytes=123456789")
    described = ["--describe", "--entity-type", "brokers"]
    heads = ["Dynamic configs for broker 1 are:", "Default configs for brokers in the cluster are:"]
    see(
        lambda: _configs(tools, *described),
        [
            (heads[0], ""),
            (
                "log.retention.ms=123456789",
                "{DYNAMIC_BROKER_CONFIG:log.retention.ms=123456789, "
                "DEFAULT_CONFIG:log.retention.hours=168}",
            ),
            (heads[1], ""),
            (
                "log.segment.bytes=123456789",
                "{DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=123456789}",
            ),
            MINIMUM,
        ],
    )
    tools.configs("--alter", *broker, "--delete-config", "log.retention.ms")
    tools.configs("--alter", *everyone, "--delete-config", "log.segment.bytes")
    left = [(heads[0], ""), (heads[1], ""), MINIMUM]
    see(lambda: _configs(tools, *described), left)


def test_the_configs_of_groups_are_altered_and_described(tools: Tools, new_name: NewName) -> None:
    group = ["--entity-type", "groups", "--entity-name", new_name("group")]
    tools.configs("--alter", *group, "--add-config", "consumer.session.timeout.ms=46000")
    config = (
        "consumer.session.timeout.ms=46000",
        "{DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=46000}",
    )
    see(lambda: _configs(tools, "--describe", *group)[1:], [config])
    tools.configs("--alter", *group, "--delete-config", "consumer.session.timeout.ms")


def test_configs_that_make_no_sense_are_refused(tools: Tools, new_topic: NewTopic) -> None:
    topic = ["--topic", new_topic(1)]
    broker = ["--entity-type", "brokers", "--entity-name", "1"]
    for entity, config, reason in [
        (topic, "nonsense=1", "Unknown topic config name: nonsense"),
        (topic, "retention.ms=-7", "Value must be at least -1"),
        (broker, "node.id=3", "Cannot update these configs dynamically: Set(node.id)"),
    ]:
        ran = tools.attempt("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", config)
        assert ran.code == 1
        assert reason in ran.err
