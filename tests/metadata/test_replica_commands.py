"""ElectLeaders, on clusters of several brokers."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.steps import finish
from dohle.metadata.brokers import fence_broker, unfence_broker
from dohle.metadata.leader_elections import ElectionType, elect_leaders
from dohle.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from dohle.protocol.messages.records.cluster_metadata import PartitionChangeRecord
from tests.metadata.cluster import Cluster
from tests.metadata.one_topic import JAYS, ids, partition, with_topic


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
