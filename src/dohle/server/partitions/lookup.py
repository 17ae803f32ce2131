"""Finding a partition that a request names, with Kafka's errors where it is not to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.server.partitions.partitions import Partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer


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
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is being made on this broker"
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
    partition = local_partition(broker, topic, index)
    if partition.image.leader != broker.node_id:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{index}"
        )
    return partition
