"""AssignReplicasToDirs: where brokers have their replicas."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, Uuid
from dohle.metadata.brokers import unfence_broker
from dohle.metadata.directories import assign_replicas_to_dirs
from dohle.metadata.metadata_version import LATEST_LEVEL
from dohle.metadata.partition import DIRECTORY_UNASSIGNED, NO_LEADER, PartitionImage
from dohle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from tests.metadata.cluster import Cluster, registration, uuid

ONE, TWO, LOST = uuid(501), uuid(502), uuid(503)


def cluster_of_two_directories(level: int = LATEST_LEVEL) -> Cluster:
    made = Cluster()
    made.bootstrap(level)
    made.register(registration(1, log_dirs=(ONE, TWO)))
    made.write(unfence_broker(made.image, 1, made.context))
    return made


def assign(
    made: Cluster,
    topic_id: Uuid,
    index: int,
    directory: Uuid,
    *,
    broker_id: int = 1,
    epoch: int | None = None,
) -> int:
    """Assign one replica, and return the error code that its answer has."""
    partition = AssignReplicasToDirsRequestPartitionData(partition_index=index)
    topic = AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=(partition,))
    broker = made.image.broker(broker_id)
    known = -1 if broker is None else broker.epoch
    request = AssignReplicasToDirsRequest(
        broker_id=BrokerId(broker_id),
        broker_epoch=known if epoch is None else epoch,
        directories=(AssignReplicasToDirsRequestDirectoryData(id=directory, topics=(topic,)),),
    )
    reply = made.commit(assign_replicas_to_dirs(made.image, request, made.context))
    if reply.error_code:
        return reply.error_code
    return reply.directories[0].topics[0].partitions[0].error_code


def partition_of(made: Cluster, name: str) -> PartitionImage:
    return made.topic(name).partitions[0]


def test_a_broker_tells_where_it_has_a_replica() -> None:
    """D2: only its own slot; no new leader epoch."""
    made = cluster_of_two_directories()
    topic_id = made.create_topic("jays").topic_id
    before = partition_of(made, "jays")
    assert before.directories == (DIRECTORY_UNASSIGNED,)
    assert assign(made, topic_id, 0, TWO) == 0
    after = partition_of(made, "jays")
    assert after.directories == (TWO,)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1


def test_what_is_known_already_is_not_written_again() -> None:
    made = cluster_of_two_directories()
    topic_id = made.create_topic("jays").topic_id
    assign(made, topic_id, 0, ONE)
    count = len(made.batches)
    assert assign(made, topic_id, 0, ONE) == 0
    assert len(made.batches) == count


def test_replicas_that_are_not_there_are_refused_one_by_one() -> None:
    """D2: 77 at the top; 100, 3 and 6 for each."""
    made = cluster_of_two_directories()
    topic_id = made.create_topic("jays").topic_id
    assert assign(made, uuid(999), 0, ONE) == ErrorCode.UNKNOWN_TOPIC_ID
    assert assign(made, topic_id, 1, ONE) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made.start_broker(2)
    assert assign(made, topic_id, 0, ONE, broker_id=2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(made, topic_id, 0, ONE, epoch=77) == ErrorCode.STALE_BROKER_EPOCH
    assert partition_of(made, "jays").directories == (DIRECTORY_UNASSIGNED,)


def test_a_replica_in_a_directory_that_is_offline_does_not_lead() -> None:
    """D2: assigned, and out of ISR and leadership."""
    made = cluster_of_two_directories()
    topic_id = made.create_topic("jays").topic_id
    made.create_topic("crows")
    assert assign(made, topic_id, 0, LOST) == 0
    assert partition_of(made, "jays").leader == NO_LEADER
    assert partition_of(made, "crows").leader == 1


def test_a_replica_found_in_an_online_directory_leads_where_nobody_does() -> None:
    made = cluster_of_two_directories()
    topic_id = made.create_topic("jays").topic_id
    assign(made, topic_id, 0, LOST)
    assert partition_of(made, "jays").leader == NO_LEADER
    assert assign(made, topic_id, 0, ONE) == 0
    after = partition_of(made, "jays")
    assert (after.leader, after.directories) == (1, (ONE,))


def test_an_old_level_of_the_metadata_knows_no_directories() -> None:
    """D2: 35 below 17."""
    made = cluster_of_two_directories(16)
    topic_id = made.create_topic("jays").topic_id
    assert assign(made, topic_id, 0, ONE) == ErrorCode.UNSUPPORTED_VERSION
