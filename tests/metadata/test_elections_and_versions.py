"""Elections that are asked for or recur, reassignments, and the versions in which it is written."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import finish
from dohle.metadata.brokers import fence_broker, register_broker, unfence_broker
from dohle.metadata.decision import Decision
from dohle.metadata.leader_elections import (
    ElectionType,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from dohle.metadata.metadata_version import fetch_version, list_offsets_version
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
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from dohle.protocol.messages.records.cluster_metadata import ConfigRecord, PartitionChangeRecord
from tests.metadata.cluster import Cluster, cluster, context, registration

JAYS = TopicName("jays")
UNCLEAN = ConfigRecord(
    resource_type=2, resource_name="jays", name="unclean.leader.election.enable", value="true"
)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def leaders(made: Cluster) -> set[int]:
    return {partition.leader for partition in made.topic("jays").partitions.values()}


def change_all(made: Cluster, **fields: object) -> None:
    """Write the same change of every partition."""
    topic = made.topic("jays")
    made.replay(
        *(
            PartitionChangeRecord(partition_id=index, topic_id=topic.id).replace(**fields)
            for index in topic.partitions
        )
    )


def of_two(partitions: int) -> Cluster:
    """Return a cluster of two brokers; all partitions have replicas 1, 2 and are led by 2."""
    made = cluster(2)
    made.create_topic("jays", partitions, 2)
    directories = tuple(made.image.brokers[each].log_dirs[0] for each in ids(1, 2))
    change_all(made, replicas=ids(1, 2), directories=directories, leader=BrokerId(2))
    return made


def test_first_replicas_are_elected_a_thousand_at_a_time() -> None:
    """C18: without any percentage of imbalance; there may be more after 1000."""
    made = of_two(1_001)
    first = finish(balance_leaders(made.image, made.context))
    assert (len(first.records), first.reply, first.is_atomic) == (1_000, True, False)
    made.write(first.records)
    assert leaders(made) == {1, 2}
    second = finish(balance_leaders(made.image, made.context))
    assert (len(second.records), second.reply) == (1, False)
    made.write(second.records)
    assert leaders(made) == {1}
    assert finish(balance_leaders(made.image, made.context)) == Decision(
        (), reply=False, is_atomic=False
    )


def test_unclean_elections_recur_only_where_they_are_allowed() -> None:
    """C15: the topic's config, then the cluster's."""
    made = of_two(3)
    change_all(made, isr=ids(2), leader=BrokerId(-1))
    made.write(fence_broker(made.image, 2, made.context))
    assert not finish(elect_unclean_leaders(made.image, made.context)).records
    cluster_wide = UNCLEAN.replace(resource_type=4, resource_name="")
    for config in (UNCLEAN, cluster_wide):
        made.replay(config)
        assert len(finish(elect_unclean_leaders(made.image, made.context)).records) == 3
        made.replay(config.replace(value=None))
    made.replay(cluster_wide, UNCLEAN.replace(value="false"))
    assert not finish(elect_unclean_leaders(made.image, made.context)).records


@pytest.mark.parametrize(
    ("kind", "topic", "leader", "isr", "expected"),
    [
        (ElectionType.PREFERRED, "other", 2, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ElectionType.PREFERRED, "jays", 1, (1, 2), ErrorCode.ELECTION_NOT_NEEDED),
        (ElectionType.PREFERRED, "jays", 2, (1, 2), ErrorCode.NONE),
        (ElectionType.PREFERRED, "jays", 2, (2,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        # It may elect another one where there is none.
        (ElectionType.PREFERRED, "jays", -1, (2,), ErrorCode.NONE),
        (ElectionType.UNCLEAN, "jays", 2, (1, 2), ErrorCode.ELECTION_NOT_NEEDED),
        (ElectionType.UNCLEAN, "jays", -1, (3,), ErrorCode.NONE),
    ],
)
def test_elect_leaders_answers_each_partition(
    kind: ElectionType, topic: str, leader: int, isr: tuple[int, ...], expected: ErrorCode
) -> None:
    """C20: unclean elections do not ask the config."""
    made = of_two(1)
    change_all(made, leader=BrokerId(leader), isr=ids(*isr))
    wanted = (TopicPartitions(topic=TopicName(topic), partitions=(0,)),)
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    decision = finish(elect_leaders(made.image, request, made.context))
    (result,) = decision.reply.replica_election_results[0].partition_result
    assert result.error_code == expected
    assert bool(decision.records) == (expected is ErrorCode.NONE)
    assert not decision.is_atomic


def test_an_unclean_election_needs_somebody_who_is_there() -> None:
    """C20: 83; a type that is none: 42."""
    made = of_two(1)
    change_all(made, leader=BrokerId(-1), isr=ids(2))
    for broker_id in (1, 2):
        made.write(fence_broker(made.image, broker_id, made.context))
    request = ElectLeadersRequest(election_type=1, topic_partitions=None)
    (topic,) = made.commit(
        elect_leaders(made.image, request, made.context)
    ).replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    bad = request.replace(election_type=7)
    reply = made.commit(elect_leaders(made.image, bad, made.context))
    assert reply.error_code == ErrorCode.INVALID_REQUEST


def reassign(made: Cluster, replicas: tuple[BrokerId, ...] | None, name: str = "jays") -> ErrorCode:
    wanted = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name=TopicName(name), partitions=(wanted,))
    request = AlterPartitionReassignmentsRequest(topics=(topic,))
    reply = made.commit(alter_partition_reassignments(made.image, request, made.context))
    return ErrorCode(reply.responses[0].partitions[0].error_code)


def test_a_reassignment_that_is_taken_back_leaves_what_was() -> None:
    """C40, C43: 85 without one; replicas and ISR without what was added, both lists empty."""
    made = of_two(1)
    made.start_broker(3)
    assert reassign(made, ids(1), "other") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(made, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    before = made.topic("jays").partitions[0]
    assert reassign(made, ids(3, 1)) is ErrorCode.NONE
    change_all(made, isr=ids(2, 3))
    assert reassign(made, None) is ErrorCode.NONE
    after = made.topic("jays").partitions[0]
    assert (set(after.replicas), after.isr) == (set(before.replicas), ids(2))
    assert (after.adding_replicas, after.removing_replicas) == ((), ())
    assert after.leader_epoch == before.leader_epoch + 1, "a replica was taken away (C2)"


@pytest.mark.parametrize("unclean", [False, True])
def test_to_take_back_a_reassignment_may_need_an_unclean_leader(unclean: bool) -> None:
    """C40, C43: 39, unless the topic allows it; then the first replica."""
    made = of_two(1)
    made.start_broker(3)
    if unclean:
        made.replay(UNCLEAN)
    assert reassign(made, ids(3)) is ErrorCode.NONE
    change_all(made, isr=ids(3), leader=BrokerId(3))
    refused = ErrorCode.NONE if unclean else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(made, None) is refused
    leader = made.topic("jays").partitions[0].leader
    assert leader == (made.topic("jays").partitions[0].replicas[0] if unclean else 3)


def test_a_reassignment_is_listed_until_it_is_complete() -> None:
    """C44: null is all; what is unknown, or has none, is left out."""
    made = of_two(2)
    made.start_broker(3)
    reassign(made, ids(3, 2))

    def listed(*topics: tuple[str, tuple[int, ...]]) -> list[tuple[str, int]]:
        asked = tuple(
            ListPartitionReassignmentsTopics(name=TopicName(name), partition_indexes=indexes)
            for name, indexes in topics
        )
        request = ListPartitionReassignmentsRequest(topics=asked or None)
        reply = finish(list_partition_reassignments(made.image, request))
        return [(one.name, each.partition_index) for one in reply.topics for each in one.partitions]

    assert listed() == [("jays", 0)]
    assert listed(("jays", (0, 1, 9)), ("other", (0,))) == [("jays", 0)]
    assert listed(("jays", (1,))) == []


@pytest.mark.parametrize(
    ("level", "broker_version", "partition_version"), [(16, 2, 0), (17, 3, 1), (23, 3, 2)]
)
def test_records_are_written_as_the_metadata_version_allows(
    level: int, broker_version: int, partition_version: int
) -> None:
    """A20."""
    made = Cluster(context())
    made.bootstrap(level)
    registering = register_broker(
        made.image, registration(), made.context, next_offset=made.next_offset
    )
    decision = finish(registering)
    assert [each.version for each in decision.records] == [broker_version]
    made.commit(decision)
    unfencing = finish(unfence_broker(made.image, 1, made.context))
    assert [each.version for each in unfencing] == [0]
    made.write(unfencing)
    topic = CreatableTopic(name=JAYS, num_partitions=1, replication_factor=1)
    created = finish(create_topics(made.image, CreateTopicsRequest(topics=(topic,)), made.context))
    assert created.records[-1].version == partition_version
    assert created.is_atomic, "A8"
    made.commit(created)
    fencing = finish(fence_broker(made.image, 1, made.context))
    assert [each.version for each in fencing] == [partition_version, 0]


def test_nothing_is_asked_about_listeners_and_racks() -> None:
    """A31: names as the broker has them; security protocol as a number."""
    made = cluster(1)
    strange = registration(2, rack="").replace(listeners=())
    assert made.register(strange).error_code == 0
    (listener,) = registration(3).listeners
    named = registration(3).replace(
        listeners=(listener.replace(name="lower-Case", security_protocol=77),)
    )
    assert made.register(named).error_code == 0
    (endpoint,) = made.image.brokers[BrokerId(3)].endpoints.values()
    assert (endpoint.name, endpoint.security_protocol) == ("lower-Case", 77)
    assert not made.image.brokers[BrokerId(2)].endpoints


#: The first level from which on a follower fetches, and asks for offsets, in these versions.
FETCHES = {7: 13, 8: 13, 9: 14, 10: 15, 18: 15, 19: 16, 20: 16, 21: 17, 26: 17, 27: 18, 29: 18}
OFFSETS = {7: 7, 8: 7, 9: 8, 20: 8, 21: 9, 24: 9, 25: 10, 28: 10, 29: 11}


def test_a_follower_speaks_the_versions_of_the_metadata_version() -> None:
    """F11: a leader serves them unasked; before the level is known, the lowest."""
    assert {level: fetch_version(level) for level in FETCHES} == FETCHES
    assert {level: list_offsets_version(level) for level in OFFSETS} == OFFSETS
    assert (fetch_version(None), list_offsets_version(None)) == (13, 7)
