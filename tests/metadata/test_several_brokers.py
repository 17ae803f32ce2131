"""Topics on several brokers: their replicas by the placer or by hand, and who leads them."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.brokers import begin_controlled_shutdown, fence_broker
from dohle.metadata.partition import DIRECTORY_UNASSIGNED
from dohle.metadata.topic_changes import create_partitions
from dohle.metadata.topics import create_topics
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.metadata.cluster import Cluster, cluster, registration, uuid

JAYS = TopicName("jays")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def assign(
    made: Cluster, *assignments: tuple[int, ...], indexes: tuple[int, ...] | None = None
) -> ErrorCode:
    """Create a topic with these replicas."""
    topic = CreatableTopic(
        name=JAYS,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids(*replicas))
            for index, replicas in zip(indexes or range(9), assignments, strict=False)
        ),
    )
    reply = made.commit(
        create_topics(made.image, CreateTopicsRequest(topics=(topic,)), made.context)
    )
    return ErrorCode(reply.topics[0].error_code)


def extend(made: Cluster, count: int, *assignments: tuple[int, ...]) -> ErrorCode:
    topic = CreatePartitionsTopic(
        name=JAYS,
        count=count,
        assignments=tuple(CreatePartitionsAssignment(broker_ids=ids(*one)) for one in assignments)
        or None,
    )
    request = CreatePartitionsRequest(topics=(topic,))
    return ErrorCode(
        made.commit(create_partitions(made.image, request, made.context)).results[0].error_code
    )


def test_a_topic_with_three_replicas_has_them_all_in_sync() -> None:
    """P5: ISR in the order of the replicas, the first leads, epochs 0."""
    made = cluster(3)
    assert made.create_topic("jays", 3, 3).error_code == 0
    for partition in made.topic("jays").partitions.values():
        assert set(partition.replicas) == {1, 2, 3}
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_minus_one_is_the_replication_factor_of_the_configuration() -> None:
    """default.replication.factor is that of the active controller."""
    made = cluster(3, {"default.replication.factor": "2", "num.partitions": "4"})
    answer = made.create_topic("jays", -1, -1)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 4, 2)
    assert {len(one.replicas) for one in made.topic("jays").partitions.values()} == {2}


@pytest.mark.parametrize("factor", [4, 0, -2])
def test_a_replication_factor_that_cannot_be_had_is_refused(factor: int) -> None:
    """P1: 38."""
    made = cluster(3)
    answer = made.create_topic("jays", 1, factor)
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_replicas_that_are_fenced_or_go_are_not_in_sync() -> None:
    """P5, P1: a fenced replica is in the assignment but not in the ISR."""
    made = cluster(3)
    made.write(fence_broker(made.image, 3, made.context))
    made.write(begin_controlled_shutdown(made.image, 2, made.context))
    assert made.create_topic("jays", 2, 3).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert made.create_topic("jays", 2, 2).error_code == 0
    for partition in made.topic("jays").partitions.values():
        assert (partition.replicas, partition.isr, partition.leader) == (ids(1, 3), ids(1), 1)


def test_the_directory_of_a_new_replica_is_the_only_one_of_its_broker() -> None:
    """P6: with several it is left to the broker."""
    made = cluster(1)
    made.register(registration(2, log_dirs=(uuid(20_000), uuid(20_001))))
    assert assign(made, (1, 2)) is ErrorCode.NONE
    assert made.topic("jays").partitions[0].directories == (uuid(10_001), DIRECTORY_UNASSIGNED)


@pytest.mark.parametrize(
    ("assignments", "indexes"),
    [
        (((1, 2), (1,)), None),
        (((1, 7),), None),
        (((1, 1),), None),
        (((),), None),
        (((1,), (2,)), (0, 2)),
        (((1,), (2,)), (1, 2)),
        (((3,),), None),
    ],
)
def test_an_assignment_by_hand_must_be_whole(
    assignments: tuple[tuple[int, ...], ...], indexes: tuple[int, ...] | None
) -> None:
    """P7: unequal, unknown, twice, empty, gaps, or nobody active (broker 3 is fenced) → 39."""
    made = cluster(3)
    made.write(fence_broker(made.image, 3, made.context))
    refused = assign(made, *assignments, indexes=indexes)
    assert refused is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not made.image.topics


def test_an_assignment_by_hand_may_name_brokers_that_are_fenced() -> None:
    """P7: unfenced is not required beyond P5."""
    made = cluster(3)
    made.write(fence_broker(made.image, 3, made.context))
    assert assign(made, (3, 1), (2, 3)) is ErrorCode.NONE
    partitions = made.topic("jays").partitions
    assert [(one.leader, one.isr) for one in partitions.values()] == [(1, ids(1)), (2, ids(2))]


def test_a_topic_grows_by_hand_or_by_the_placer() -> None:
    """CreatePartitions: the new ones have as many replicas as the first."""
    made = cluster(3)
    assert assign(made, (1, 2)) is ErrorCode.NONE
    assert extend(made, 3, (2, 3), (3, 1)) is ErrorCode.NONE
    assert extend(made, 4) is ErrorCode.NONE
    replicas = [one.replicas for one in made.topic("jays").partitions.values()]
    assert replicas[:3] == [ids(1, 2), ids(2, 3), ids(3, 1)]
    assert len(replicas[3]) == 2


@pytest.mark.parametrize("assignments", [((1,),), ((1, 2), (2, 3)), ((1, 9),), ((2, 2),)])
def test_new_partitions_by_hand_must_fit(assignments: tuple[tuple[int, ...], ...]) -> None:
    """P7: 39, also for a number of assignments that is not that of the new partitions."""
    made = cluster(3)
    assert assign(made, (1, 2)) is ErrorCode.NONE
    assert extend(made, 2, *assignments) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(made.topic("jays").partitions) == 1
