"""Reassignments on clusters of several brokers: how they begin, change and end (C40-C45)."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.core.steps import finish
from dohle.metadata.alter_partition import alter_partition
from dohle.metadata.brokers import fence_broker, unfence_broker
from dohle.metadata.partition import DIRECTORY_UNASSIGNED
from dohle.metadata.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from dohle.metadata.topic_changes import create_partitions, delete_topics
from dohle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)
from dohle.protocol.messages.records.cluster_metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from tests.metadata.cluster import Cluster, registration, uuid
from tests.metadata.one_topic import JAYS, ids, partition, with_topic

_TOPIC = 2


def ask(
    made: Cluster, *replicas: int, end: bool = False, index: int = 0, **more: bool
) -> ReassignablePartitionResponse:
    wanted = ReassignablePartition(partition_index=index, replicas=None if end else ids(*replicas))
    topic = ReassignableTopic(name=JAYS, partitions=(wanted,))
    request = AlterPartitionReassignmentsRequest(topics=(topic,)).replace(**more)
    reply = made.commit(finish(alter_partition_reassignments(made.image, request, made.context)))
    return reply.responses[0].partitions[0]


def reassign(made: Cluster, *replicas: int, end: bool = False, **more: bool) -> ErrorCode:
    return ErrorCode(ask(made, *replicas, end=end, **more).error_code)


def ongoing(made: Cluster) -> list[OngoingPartitionReassignment]:
    reply = finish(list_partition_reassignments(made.image, ListPartitionReassignmentsRequest()))
    return [one for topic in reply.topics for one in topic.partitions]


def report_isr(made: Cluster, *isr: int) -> ErrorCode:
    """Let the leader ask for an ISR."""
    before = partition(made)
    leader = made.image.brokers[before.leader]
    data = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=before.leader_epoch,
        new_isr_with_epochs=tuple(BrokerState(broker_id=each) for each in ids(*isr)),
        partition_epoch=before.partition_epoch,
    )
    topic = AlterPartitionRequestTopicData(topic_id=made.topic(JAYS).id, partitions=(data,))
    request = AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=(topic,))
    reply = made.commit(alter_partition(made.image, request, made.context, version=3))
    return ErrorCode(reply.topics[0].partitions[0].error_code)


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


def test_w3_the_last_of_the_new_replicas_completes_it_and_the_leader_hands_over() -> None:
    """C42, C32, C2: all targets in the ISR; the old leader is told that it is none any more."""
    made = with_topic(1, 2, 3, brokers=5)
    epoch = partition(made).leader_epoch
    assert reassign(made, 4, 5, 3) is ErrorCode.NONE
    assert partition(made).leader_epoch == epoch, "nobody was removed yet"
    assert report_isr(made, 1, 2, 3, 4) is ErrorCode.NONE
    (one,) = ongoing(made)
    assert (one.adding_replicas, one.removing_replicas) == (ids(4, 5), ids(1, 2))
    assert report_isr(made, 1, 2, 3, 4, 5) is ErrorCode.NEW_LEADER_ELECTED
    after = partition(made)
    assert (after.replicas, set(after.isr)) == (ids(4, 5, 3), {3, 4, 5})
    assert (after.leader, after.leader_epoch) == (4, epoch + 1)
    assert ongoing(made) == []


def test_a_leader_that_stays_gets_a_new_epoch_when_others_go() -> None:
    """C2."""
    made = with_topic(1, 2, brokers=3)
    epoch = partition(made).leader_epoch
    assert reassign(made, 1, 3) is ErrorCode.NONE
    assert report_isr(made, 1, 2, 3) is ErrorCode.NONE
    after = partition(made)
    assert (after.replicas, after.leader, after.leader_epoch) == (ids(1, 3), 1, epoch + 1)


def test_a_target_that_is_fenced_is_waited_for() -> None:
    """C42: also when others that are to go leave the ISR meanwhile."""
    made = with_topic(1, 2, brokers=3)
    made.write(fence_broker(made.image, 3, made.context))
    assert reassign(made, 1, 3) is ErrorCode.NONE
    assert report_isr(made, 1, 3) is ErrorCode.INELIGIBLE_REPLICA
    made.write(fence_broker(made.image, 2, made.context))
    assert len(ongoing(made)) == 1
    made.write(unfence_broker(made.image, 3, made.context))
    assert report_isr(made, 1, 3) is ErrorCode.NONE
    assert (partition(made).replicas, ongoing(made)) == (ids(1, 3), [])


def test_it_completes_with_any_change_that_makes_it_complete() -> None:
    """C42: here by the fencing of the broker that was to go."""
    made = with_topic(1, 2, brokers=3)
    assert reassign(made, 3, 1) is ErrorCode.NONE
    made.replay(
        PartitionChangeRecord(partition_id=0, topic_id=made.topic(JAYS).id, isr=ids(1, 2, 3))
    )
    made.write(fence_broker(made.image, 2, made.context))
    after = partition(made)
    assert (after.replicas, set(after.isr), ongoing(made)) == (ids(3, 1), {1, 3}, [])


def test_a_leader_that_fails_meanwhile_is_followed_by_one_in_sync() -> None:
    made = with_topic(1, 2, brokers=4)
    assert reassign(made, 3, 4) is ErrorCode.NONE
    assert report_isr(made, 1, 2, 3) is ErrorCode.NONE
    made.write(fence_broker(made.image, 1, made.context))
    after = partition(made)
    assert (after.leader, set(after.isr)) == (3, {2, 3}), "the first of the replicas in sync"
    assert len(ongoing(made)) == 1


def test_a_target_may_change_while_it_goes_on() -> None:
    """C41: what is added and removed follows from the replicas that there are."""
    made = with_topic(1, 2, brokers=4)
    assert reassign(made, 3, 2) is ErrorCode.NONE
    assert reassign(made, 4, 2) is ErrorCode.NONE
    (one,) = ongoing(made)
    assert one.replicas == ids(4, 2, 1, 3)
    assert (one.adding_replicas, one.removing_replicas) == (ids(4), ids(1, 3))
    assert report_isr(made, 1, 2, 4) is ErrorCode.NEW_LEADER_ELECTED
    assert partition(made).replicas == ids(4, 2)


def test_going_back_to_the_first_assignment_is_complete_at_once() -> None:
    made = with_topic(1, 2, brokers=3)
    assert reassign(made, 3, 2) is ErrorCode.NONE
    assert reassign(made, 1, 2) is ErrorCode.NONE
    assert (partition(made).replicas, ongoing(made)) == (ids(1, 2), [])


def test_what_would_leave_nobody_in_sync_is_not_cancelled_unless_that_is_allowed() -> None:
    """C40, C43."""
    made = with_topic(1, brokers=3)
    assert reassign(made, 2, 3) is ErrorCode.NONE
    assert report_isr(made, 1, 2) is ErrorCode.NONE
    made.write(fence_broker(made.image, 1, made.context))
    assert partition(made).isr == ids(2)
    refused = ask(made, end=True)
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused.error_message == (
        "Unable to revert partition assignment for jays:0 because it would require an unclean "
        "leader election."
    )
    made.write(unfence_broker(made.image, 1, made.context))
    made.replay(
        ConfigRecord(
            resource_type=_TOPIC,
            resource_name=JAYS,
            name="unclean.leader.election.enable",
            value="true",
        )
    )
    assert reassign(made, end=True) is ErrorCode.NONE
    after = partition(made)
    assert (after.replicas, after.isr, after.leader) == (ids(1), ids(1), 1)


def test_the_refusals_say_what_kafkas_say() -> None:
    made = with_topic(1)
    # What the code says already is not said again.
    assert ask(made, end=True).error_message is None
    missing = ask(made, 1, index=7)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_message == "Unable to find partition jays:7."
    assert ask(made, 1, 9).error_message == (
        "The manual partition assignment includes broker 9, but no such broker is registered."
    )


def test_a_replica_that_was_reassigned_away_is_not_eligible_when_it_comes_back_empty() -> None:
    """A deleted log must not be taken for one that has what was committed."""
    made = with_topic(1, 2, 3)
    made.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    made.replay(
        ConfigRecord(
            resource_type=_TOPIC, resource_name=JAYS, name="min.insync.replicas", value="2"
        )
    )
    for broker in (2, 3):
        made.write(fence_broker(made.image, broker, made.context))
    assert (partition(made).isr, partition(made).elr) == (ids(1), ids(3))
    assert reassign(made, 1) is ErrorCode.NONE
    assert (partition(made).replicas, partition(made).elr) == (ids(1), ())
    assert reassign(made, 1, 3) is ErrorCode.NONE
    made.write(unfence_broker(made.image, 3, made.context))
    made.write(fence_broker(made.image, 1, made.context))
    assert partition(made).leader == -1


def test_a_new_replica_is_in_the_only_directory_of_its_broker_or_chooses_one() -> None:
    """C44, P6."""
    made = with_topic(1)
    made.register(registration(4, log_dirs=(uuid(501), uuid(502))))
    made.write(unfence_broker(made.image, 4, made.context))
    assert reassign(made, 1, 2, 4) is ErrorCode.NONE
    after = partition(made)
    assert after.directory_of(2) == made.image.brokers[ids(2)[0]].log_dirs[0]
    assert after.directory_of(4) == DIRECTORY_UNASSIGNED


def test_a_topic_may_get_partitions_and_go_while_it_is_reassigned() -> None:
    made = with_topic(1, 2)
    assert reassign(made, 2, 3) is ErrorCode.NONE
    more = CreatePartitionsTopic(name=JAYS, count=2, assignments=None)
    created = made.commit(
        create_partitions(made.image, CreatePartitionsRequest(topics=(more,)), made.context)
    )
    assert created.results[0].error_code == 0
    # As in Kafka: as many as the first partition has in this moment.
    assert len(made.topic(JAYS).partitions[1].replicas) == 3
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=JAYS),))
    made.commit(delete_topics(made.image, request, made.context, version=6))
    assert ongoing(made) == []


def test_only_what_is_asked_for_and_goes_on_is_listed() -> None:
    """C44."""
    made = with_topic(1, 2)
    assert reassign(made, 2, 3) is ErrorCode.NONE

    def listed(name: str, *indexes: int) -> int:
        topic = ListPartitionReassignmentsTopics(
            name=TopicName(name), partition_indexes=tuple(indexes)
        )
        request = ListPartitionReassignmentsRequest(topics=(topic,))
        reply = finish(list_partition_reassignments(made.image, request))
        return sum(len(found.partitions) for found in reply.topics)

    assert (listed("jays", 0), listed("jays", 1), listed("magpies", 0)) == (1, 0, 0)
