"""CreateTopics: what is written, and what is refused with which words."""

from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import finish
from dohle.metadata.brokers import begin_controlled_shutdown, fence_broker, unfence_broker
from dohle.metadata.partition import DIRECTORY_UNASSIGNED
from dohle.metadata.topics import create_topics
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from dohle.protocol.messages.records.cluster_metadata import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.metadata.cluster import Cluster, cluster, registration, uuid


def topic(name: str = "jays", partitions: int = 1, factor: int = 1, **more: Any) -> CreatableTopic:
    return CreatableTopic(
        name=TopicName(name), num_partitions=partitions, replication_factor=factor, **more
    )


def assigned(*replicas: tuple[int, ...], **more: Any) -> CreatableTopic:
    return topic(partitions=-1, factor=-1, **more).replace(
        assignments=tuple(
            CreatableReplicaAssignment(
                partition_index=index, broker_ids=tuple(map(BrokerId, brokers))
            )
            for index, brokers in enumerate(replicas)
        )
    )


def configured(**configs: str | None) -> CreatableTopic:
    return topic(
        configs=tuple(
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        )
    )


def create(made: Cluster, *topics: CreatableTopic) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics)
    return list(made.commit(create_topics(made.image, request, made.context)).topics)


def test_a_topic_is_a_topic_record_then_its_configs_then_its_partitions() -> None:
    """P7."""
    made = cluster()
    (result,) = create(made, configured(retention_ms="5").replace(num_partitions=2))
    assert made.batches[-1] == [
        TopicRecord(name=TopicName("jays"), topic_id=result.topic_id),
        ConfigRecord(resource_type=2, resource_name="jays", name="retention.ms", value="5"),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=result.topic_id,
                replicas=(BrokerId(1),),
                isr=(1,),
                leader=BrokerId(1),
                leader_epoch=0,
                partition_epoch=0,
                directories=(uuid(10_001),),
            )
            for index in range(2)
        ),
    ]


def test_the_answer_tells_id_counts_and_the_configs_that_apply() -> None:
    made = cluster(properties={"log.segment.bytes": "2000000"})
    (result,) = create(made, configured(retention_ms="5"))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (1, 1)
    assert result.topic_id == made.topic("jays").id
    assert result.configs is not None
    configs = {config.name: (config.value, config.config_source) for config in result.configs}
    assert configs["retention.ms"] == ("5", 1)
    assert configs["segment.bytes"] == ("2000000", 4)
    assert configs["flush.ms"][1] == 5
    assert list(configs) == sorted(configs)


def test_minus_one_is_the_brokers_default() -> None:
    made = cluster(2, {"num.partitions": "7", "default.replication.factor": "2"})
    (result,) = create(made, topic(partitions=-1, factor=-1))
    assert (result.num_partitions, result.replication_factor) == (7, 2)


def test_a_broker_with_several_directories_chooses_one_by_itself() -> None:
    made = Cluster()
    made.bootstrap()
    made.register(registration(log_dirs=(uuid(701), uuid(702))))
    made.write(unfence_broker(made.image, 1, made.context))
    create(made, topic())
    assert made.topic("jays").partitions[0].directories == (DIRECTORY_UNASSIGNED,)


def test_partitions_of_an_old_metadata_version_have_no_directories() -> None:
    made = Cluster()
    made.bootstrap(16)
    made.start_broker()
    (result,) = create(made, topic())
    assert result.error_code == 0
    partition = made.batches[-1][1]
    assert isinstance(partition, PartitionRecord)
    assert partition.directories == ()


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    made = cluster(3)
    (result,) = create(made, assigned((3, 1), (2, 3)))
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    partitions = made.topic("jays").partitions
    assert [partition.replicas for partition in partitions.values()] == [(3, 1), (2, 3)]
    assert [partition.leader for partition in partitions.values()] == [3, 2]


def test_replicas_that_are_not_active_are_not_in_sync() -> None:
    made = cluster(3)
    made.write(fence_broker(made.image, 3, made.context))
    create(made, assigned((3, 1)))
    partition = made.topic("jays").partitions[0]
    assert (partition.isr, partition.leader) == ((1,), 1)


def test_with_validate_only_all_is_checked_and_nothing_written() -> None:
    made = cluster()
    request = CreateTopicsRequest(topics=(topic(), topic("bad name")), validate_only=True)
    decision = finish(create_topics(made.image, request, made.context))
    assert decision.records == ()
    assert [result.error_code for result in decision.reply.topics] == [0, 17]
    assert decision.reply.topics[0].num_partitions == 1


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (topic(""), 17, "Topic name is invalid: the empty string is not allowed"),
        (topic("."), 17, "Topic name is invalid: '.' is not allowed"),
        (topic(".."), 17, "Topic name is invalid: '..' is not allowed"),
        (topic("a" * 250), 17, "longer than the max allowed length 249"),
        (topic("jäger"), 17, "other than ASCII alphanumerics"),
        (topic("a\n"), 17, "other than ASCII alphanumerics"),
        (topic("old"), 36, "Topic 'old' already exists."),
        (topic("old.one"), 36, "Topic 'old.one' already exists."),
        (topic("old_one"), 17, "Topic 'old_one' collides with existing topic: old.one"),
        (topic(partitions=0), 37, "invalid non-positive value"),
        (topic(partitions=-2), 37, "invalid non-positive value"),
        (topic(factor=0), 38, "larger than 0"),
        (topic(factor=-2), 38, "larger than 0"),
        (topic(factor=4), 38, "Unable to replicate the partition 4 time(s): The target"),
        (assigned((1,)).replace(replication_factor=1), 42, "replication factor was not set to -1"),
        (assigned((1,)).replace(num_partitions=1), 42, "numPartitions was not set to -1"),
        (assigned(()), 39, "includes an empty replica list"),
        (assigned((1, 9)), 39, "includes broker 9, but no such broker is registered"),
        (assigned((1, 1)), 39, "includes the broker 1 more than once"),
        (assigned((1,), (1, 2)), 39, "2 replica(s), but this is not consistent"),
        (
            assigned((1,)).replace(assignments=assigned((1,)).assignments * 2),
            39,
            "multiple manual partition assignments for partition 0",
        ),
        (
            assigned((1,)).replace(assignments=assigned((1,), (1,)).assignments[1:]),
            39,
            "consecutive 0-based",
        ),
        (configured(foo="1"), 40, "Unknown topic config name: foo"),
        (configured(retention_ms="x"), 40, "Invalid value x for configuration retention.ms"),
        (configured(retention_ms=None), 40, "Null value not supported for topic configs"),
        (configured(compression_type="z" * 40_000), 40, "longer than the maximum"),
        (topic("__cluster_metadata"), 42, "is prohibited"),
    ],
)
def test_what_is_refused(wanted: CreatableTopic, code: int, message: str) -> None:
    made = cluster(3)
    create(made, topic("old"), topic("old.one"))
    batches = len(made.batches)
    (result,) = create(made, wanted)
    assert result.error_code == code
    assert message in (result.error_message or "")
    assert len(made.batches) == batches


def test_each_topic_of_a_request_has_its_own_result() -> None:
    made = cluster()
    results = create(made, topic("a"), topic("b", factor=9), topic("c"))
    assert [(result.name, result.error_code) for result in results] == [
        ("a", 0),
        ("b", 38),
        ("c", 0),
    ]
    assert list(made.image.topics) == ["a", "c"]


def test_topics_named_twice_in_a_request_are_not_created() -> None:
    made = cluster()
    results = create(made, topic("a"), topic("b"), topic("a"))
    assert [(result.name, result.error_code) for result in results] == [("b", 0), ("a", 42)]
    assert results[1].error_message == "Duplicate topic name."


def test_topics_of_one_request_do_not_collide_either() -> None:
    made = cluster()
    results = create(made, topic("a.b"), topic("a_b"))
    assert [result.error_code for result in results] == [0, 17]


def test_a_name_is_free_again_once_its_colliding_topic_is_gone() -> None:
    made = cluster()
    create(made, topic("a.b"))
    assert create(made, topic("a_b"))[0].error_code == 17
    assert made.image.colliding_names == {"a_b": ("a.b",)}


def test_too_many_partitions_for_one_request_are_refused_for_all_topics() -> None:
    """P7: 44."""
    made = cluster()
    results = create(made, topic("a", partitions=9_999), topic("b", partitions=2))
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * 2
    results = create(made, topic("a", partitions=5_000), topic("b", partitions=5_000))
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert not made.image.topics


def test_without_active_brokers_no_topic_can_be_created() -> None:
    made = cluster()
    made.write(begin_controlled_shutdown(made.image, 1, made.context))
    (result,) = create(made, topic())
    assert result.error_code == 38
    assert (result.error_message or "").endswith("All brokers are currently fenced.")
    (result,) = create(made, assigned((1,)))
    assert result.error_code == 39
    assert "fenced or in controlled shutdown" in (result.error_message or "")


def test_a_new_minimum_of_replicas_clears_the_elr_where_that_is_on() -> None:
    """A23."""
    made = cluster()
    made.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    create(made, configured(min_insync_replicas="1"))
    assert made.batches[-1][2] == ClearElrRecord(topic_name=TopicName("jays"))
