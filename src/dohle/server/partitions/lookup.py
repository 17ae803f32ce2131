"""Finding the partition that a request names, with Kafka's errors, in Kafka's order.

Every read goes through ``find_partition``, which is told who asks for the partition, and which
leader epoch they expect:

1. No such partition: 3. It has no replica here, or is being created: 6. Its disk has failed: 56.
2. The expected leader epoch is past: 74; it is not known here yet: 75. (-1 means that the asker
   does not say.) This goes before the next check: whoever knows of a newer leader
   should ask again.
3. The asker needs the leader, and this broker does not lead: 6.
4. A follower fetches, but as far as this broker knows it is none of the partition's replicas: 75 if
   it has named the epoch, since it may know of a change that has not arrived here yet, else 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.server.partitions.partitions import Partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

#: The asker does not say which epoch it expects.
ANY_EPOCH = -1

#: The replica id of a debugger, which may read any replica of a partition.
_DEBUGGER = -2
#: From this version of Fetch on, consumers can be sent to a follower and read from it (KIP-392).
_FETCHES_FROM_FOLLOWERS = 11


class Asker(NamedTuple):
    """Who asks for a partition, and whether any replica of it will do."""

    needs_leader: bool
    #: The broker that asks for its replica of the partition.
    follower: BrokerId | None = None


#: A client that must find the leader, and one that any replica can serve.
NEEDS_LEADER, ANY_REPLICA = Asker(True), Asker(False)


def fetching(follower: BrokerId | None, version: int) -> Asker:
    """Return who sends a Fetch request: a follower, or a consumer."""
    if follower is not None:
        return Asker(True, follower)
    return ANY_REPLICA if version >= _FETCHES_FROM_FOLLOWERS else NEEDS_LEADER


def listing_offsets(replica_id: int) -> Asker:
    """Return who sends a ListOffsets request: a debugger may ask any replica."""
    return ANY_REPLICA if replica_id == _DEBUGGER else NEEDS_LEADER


def find_partition(
    broker: BrokerServer, topic: TopicName, index: int, asker: Asker, epoch: int = ANY_EPOCH
) -> Partition:
    """Return a partition that can be used, if the asker may have it; else raise KafkaError."""
    partition = local_partition(broker, topic, index)
    check_asker(broker, partition, asker, epoch)
    return partition


def check_asker(
    broker: BrokerServer, partition: Partition, asker: Asker, epoch: int = ANY_EPOCH
) -> None:
    """Refuse a partition to an asker that may not have it."""
    if epoch != ANY_EPOCH:
        partition.check_epoch(epoch)
    if asker.needs_leader and not partition.is_led:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition.key}"
        )
    if asker.follower is not None:
        _check_follower(broker, partition, asker.follower, epoch)


def local_partition(broker: BrokerServer, topic: TopicName, index: int) -> Partition:
    """Return a partition whose replica is here and can be used."""
    partition = broker.partitions.get(topic, index)
    if partition is not None:
        partition.log.disk.ensure_online()
        return partition
    image = broker.image.partition(topic, index)
    if image is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
        )
    if TopicPartition(topic, index) in broker.partitions.being_made:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is being created on this broker"
        )
    if broker.node_id in image.replicas:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{index} could not be opened"
        )
    raise KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no replica on this broker"
    )


def led_partition(broker: BrokerServer, topic: TopicName, index: int) -> Partition:
    """Return a partition that this broker leads."""
    return find_partition(broker, topic, index, NEEDS_LEADER)


def _check_follower(
    broker: BrokerServer, partition: Partition, follower: BrokerId, epoch: int
) -> None:
    if follower != broker.node_id and follower in partition.image.replicas:
        return
    raise KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == ANY_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"{partition.key} has no other replica on broker {follower}",
    )
