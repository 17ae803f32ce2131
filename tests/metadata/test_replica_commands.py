"""ElectLeaders and the reassignments, on clusters of several brokers."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import finish
from dohle.metadata.brokers import fence_broker, unfence_broker
from dohle.metadata.leader_elections import ElectionType, elect_leaders
from dohle.metadata.partition import PartitionImage
from dohle.metadata.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from dohle.metadata.topics import create_topics
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from dohle.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
)
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord
from tests.metadata.cluster import Cluster, cluster

JAYS = TopicName("jays")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def with_topic(*replicas: int, brokers: int = 3) -> Cluster:
    made = cluster(brokers)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=ids(*replicas))
    topic = CreatableTopic(
        name=JAYS, num_partitions=-1, replication_factor=-1, assignments=(assignment,)
    )
    request = CreateTopicsRequest(topics=(topic,))
    made.commit(finish(create_topics(made.image, request, made.context)))
    return made


def partition(made: Cluster) -> PartitionImage:
    return made.topic("jays").partitions[0]


def elect(made: Cluster, kind: ElectionType, *, everywhere: bool = False) -> list[ErrorCode]:
    wanted = None if everywhere else (TopicPartitions(topic=JAYS, partitions=(0,)),)
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    reply = made.commit(finish(elect_leaders(made.image, request, made.context)))
    assert reply.error_code == 0
    return [
        ErrorCode(one.error_code)
        for topic in reply.replica_election_results
        for one in topic.partition_result
    ]


def reassign(made: Cluster, *replicas: int, end: bool = False, **more: bool) -> ErrorCode:
    wanted = ReassignablePartition(partition_index=0, replicas=None if end else ids(*replicas))
    topic = ReassignableTopic(name=JAYS, partitions=(wanted,))
    request = AlterPartitionReassignmentsRequest(topics=(topic,)).replace(**more)
    reply = made.commit(finish(alter_partition_reassignments(made.image, request, made.context)))
    return ErrorCode(reply.responses[0].partitions[0].error_code)


def ongoing(made: Cluster) -> list[OngoingPartitionReassignment]:
    reply = finish(list_partition_reassignments(made.image, ListPartitionReassignmentsRequest()))
    return [one for topic in reply.topics for one in topic.partitions]


def test_the_first_replica_leads_again_when_it_is_asked_for() -> None:
    made = with_topic(1, 2)
    made.write(fence_broker(made.image, 1, made.context))
    assert partition(made).leader == 2
    assert elect(made, ElectionType.PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    made.write(unfence_broker(made.image, 1, made.context))
    # It is there, but not in sync.
    assert elect(made, ElectionType.PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    made.replay(
        PartitionChangeRecord(partition_id=0, topic_id=made.topic("jays").id, isr=ids(2, 1))
    )
    epoch = partition(made).leader_epoch
    assert elect(made, ElectionType.PREFERRED) == [ErrorCode.NONE]
    assert (partition(made).leader, partition(made).leader_epoch) == (1, epoch + 1)
    assert elect(made, ElectionType.PREFERRED) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert elect(made, ElectionType.PREFERRED, everywhere=True) == []


def test_an_unclean_election_gives_a_partition_without_a_leader_one() -> None:
    made = with_topic(1, 2)
    assert elect(made, ElectionType.UNCLEAN) == [ErrorCode.ELECTION_NOT_NEEDED]
    made.write(fence_broker(made.image, 2, made.context))
    made.write(fence_broker(made.image, 1, made.context))
    assert elect(made, ElectionType.UNCLEAN) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    made.write(unfence_broker(made.image, 2, made.context))
    assert partition(made).leader == -1
    assert elect(made, ElectionType.UNCLEAN, everywhere=True) == [ErrorCode.NONE]
    assert (partition(made).leader, partition(made).isr) == (2, ids(2))


def test_a_replica_is_taken_away_at_once_and_the_rest_lead_on() -> None:
    made = with_topic(1, 2)
    assert reassign(made, 2) is ErrorCode.NONE
    after = partition(made)
    assert (after.replicas, after.isr, after.leader) == (ids(2), ids(2), 2)
    assert len(after.directories) == 1
    assert ongoing(made) == []


def test_replicas_in_another_order_are_the_same_replicas() -> None:
    made = with_topic(1, 2)
    before = partition(made)
    assert reassign(made, 2, 1) is ErrorCode.NONE
    after = partition(made)
    assert (after.replicas, after.leader) == (ids(2, 1), 1)
    assert after.directory_of(1) == before.directory_of(1)
    offset = made.image.offset
    assert reassign(made, 2, 1) is ErrorCode.NONE
    assert made.image.offset == offset


def test_new_replicas_are_awaited_and_can_be_given_up() -> None:
    made = with_topic(1, 2)
    before = partition(made)
    assert reassign(made, end=True) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(made, 2, 3) is ErrorCode.NONE
    (one,) = ongoing(made)
    assert (one.replicas, one.adding_replicas, one.removing_replicas) == (
        ids(2, 3, 1),
        ids(3),
        ids(1),
    )
    assert partition(made).leader == 1
    assert reassign(made, end=True) is ErrorCode.NONE
    after = partition(made)
    assert ongoing(made) == []
    assert (set(after.replicas), after.isr) == (set(before.replicas), before.isr)


def test_what_is_no_assignment_is_refused() -> None:
    made = with_topic(1, 2)
    for replicas in ((), (1, 1), (1, 7)):
        assert reassign(made, *replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    refused = reassign(made, 1, allow_replication_factor_change=False)
    assert refused is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(made, 2, 1, allow_replication_factor_change=False) is ErrorCode.NONE
