"""DeleteTopics and CreatePartitions."""

import pytest

from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.steps import finish
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.brokers import begin_controlled_shutdown, fence_broker
from dohle.metadata.topic_changes import create_partitions, delete_topics
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.metadata.cluster import Cluster, cluster, uuid


def named(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=TopicName(name))


def of_id(topic_id: Uuid) -> DeleteTopicState:
    return DeleteTopicState(topic_id=topic_id)


def delete(made: Cluster, *topics: DeleteTopicState) -> list[tuple[str | None, Uuid, int]]:
    request = DeleteTopicsRequest(topics=topics)
    reply = made.commit(delete_topics(made.image, request, made.context, version=6))
    return [(each.name, each.topic_id, each.error_code) for each in reply.responses]


def test_topics_are_deleted_by_name_and_by_id() -> None:
    made = cluster()
    first = made.create_topic("first").topic_id
    second = made.create_topic("second").topic_id
    assert delete(made, named("first"), of_id(second)) == [
        ("first", first, 0),
        ("second", second, 0),
    ]
    assert not made.image.topics


def test_before_version_6_topics_are_a_list_of_names() -> None:
    made = cluster()
    made.create_topic("jays")
    request = DeleteTopicsRequest(topic_names=(TopicName("jays"), TopicName("crows")))
    reply = made.commit(delete_topics(made.image, request, made.context, version=5))
    assert [(each.name, each.error_code) for each in reply.responses] == [("jays", 0), ("crows", 3)]
    assert not made.image.topics


def test_what_is_not_there_is_said_by_name_or_by_id() -> None:
    made = cluster()
    assert delete(made, named("crows"), of_id(uuid(999))) == [
        ("crows", ZERO_UUID, 3),
        (None, uuid(999), 100),
    ]


def test_a_topic_must_be_named_in_one_way_and_once() -> None:
    made = cluster()
    ids = {name: made.create_topic(name).topic_id for name in ("a", "b", "c", "d")}
    both = DeleteTopicState(name=TopicName("a"), topic_id=ids["a"])
    wanted = [both, DeleteTopicState(), named("b"), named("b"), of_id(ids["c"]), of_id(ids["c"])]
    assert delete(made, *wanted) == [
        ("a", ids["a"], 42),
        (None, ZERO_UUID, 42),
        ("b", ZERO_UUID, 42),
        (None, ids["c"], 42),
    ]
    assert delete(made, both, both, DeleteTopicState(), DeleteTopicState()) == [
        *[("a", ids["a"], 42)] * 2,
        *[(None, ZERO_UUID, 42)] * 2,
    ]
    assert list(made.image.topics) == ["a", "b", "c", "d"]


def test_a_topic_named_by_its_name_and_by_its_id_is_refused_once_and_stays() -> None:
    made = cluster()
    ids = {name: made.create_topic(name).topic_id for name in ("a", "b", "c", "d")}
    assert delete(made, of_id(ids["d"]), named("d"), named("a")) == [
        ("d", ids["d"], 42),
        ("a", ids["a"], 0),
    ]
    # An id that is given twice is as much a second name for the topic as one given once is.
    assert delete(made, of_id(ids["b"]), named("b"), of_id(ids["b"])) == [
        ("b", ids["b"], 42),
        (None, ids["b"], 42),
    ]
    # A name that is given twice does not count: the id alone names the topic.
    assert delete(made, named("c"), of_id(ids["c"]), named("c")) == [
        ("c", ZERO_UUID, 42),
        ("c", ids["c"], 0),
    ]
    assert list(made.image.topics) == ["b", "d"]


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (6, 73)])
def test_deletion_can_be_switched_off(version: int, code: int) -> None:
    made = cluster(properties={"delete.topic.enable": "false"})
    made.create_topic("jays")
    request = DeleteTopicsRequest(topics=(named("jays"),))
    decision = finish(delete_topics(made.image, request, made.context, version=version))
    assert [each.error_code for each in decision.reply.responses] == [code]
    assert decision.records == ()


def more(
    made: Cluster,
    count: int,
    assignments: list[tuple[int, ...]] | None = None,
    *,
    name: str = "jays",
    validate_only: bool = False,
) -> tuple[int, str | None]:
    topic = CreatePartitionsTopic(
        name=TopicName(name),
        count=count,
        assignments=None
        if assignments is None
        else tuple(
            CreatePartitionsAssignment(broker_ids=tuple(map(BrokerId, each)))
            for each in assignments
        ),
    )
    request = CreatePartitionsRequest(topics=(topic,), validate_only=validate_only)
    reply = made.commit(create_partitions(made.image, request, made.context))
    return reply.results[0].error_code, reply.results[0].error_message


def test_a_topic_grows_with_the_replication_factor_it_has() -> None:
    made = cluster(3)
    made.create_topic("jays", 2, 2)
    before = made.topic("jays").partitions
    assert more(made, 5) == (0, None)
    after = made.topic("jays").partitions
    assert list(after) == [0, 1, 2, 3, 4]
    assert all(len(partition.replicas) == 2 for partition in after.values())
    assert [after[0], after[1]] == [before[0], before[1]]
    assert [change.partition for change in made.delta.changed_partitions] == [2, 3, 4]
    assert made.delta.created_topics == ()


def test_a_manual_assignment_is_for_the_new_partitions() -> None:
    made = cluster(3)
    made.create_topic("jays", 1, 2)
    assert more(made, 3, [(3, 1), (2, 1)]) == (0, None)
    partitions = made.topic("jays").partitions
    assert (partitions[1].replicas, partitions[2].replicas) == ((3, 1), (2, 1))


def test_validate_only_adds_nothing() -> None:
    made = cluster()
    made.create_topic("jays")
    assert more(made, 3, validate_only=True) == (0, None)
    assert len(made.topic("jays").partitions) == 1


def test_what_cannot_grow_is_refused() -> None:
    made = cluster(3)
    made.create_topic("jays", 2, 2)
    assert more(made, 3, name="crows") == (3, None)
    assert more(made, 2) == (37, "Topic already has 2 partition(s).")
    code, message = more(made, 1)
    assert code == 37
    assert "1 would not be an increase" in (message or "")
    assert more(made, 20_000)[0] == 44
    refusals: list[tuple[list[tuple[int, ...]], str]] = [
        ([(1, 2)], "only 1 assignment(s)"),
        ([(1, 2), (1,)], "not consistent with previous partitions"),
        ([(1, 2), (1, 7)], "broker 7"),
        ([(1, 2), (1, 1)], "more than once"),
        ([(1, 2), ()], "empty replica list"),
    ]
    for assignments, text in refusals:
        code, message = more(made, 4, assignments)
        assert code == 39
        assert text in (message or "")
    assert len(made.topic("jays").partitions) == 2


def test_partitions_need_active_brokers() -> None:
    made = cluster(2)
    made.create_topic("jays", 1, 2)
    made.write(begin_controlled_shutdown(made.image, 1, made.context))
    made.write(fence_broker(made.image, 2, made.context))
    assert more(made, 2, [(1, 2)])[0] == 39
    assert more(made, 2)[0] == 38


def test_a_topic_named_twice_does_not_grow() -> None:
    made = cluster()
    made.create_topic("jays")
    topic = CreatePartitionsTopic(name=TopicName("jays"), count=2, assignments=None)
    request = CreatePartitionsRequest(topics=(topic, topic))
    decision = finish(create_partitions(made.image, request, made.context))
    assert [(each.name, each.error_code) for each in decision.reply.results] == [("jays", 42)]
    assert decision.records == ()
