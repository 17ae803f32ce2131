"""A second replica for a partition of the only node, so that commits have to wait for it."""

from __future__ import annotations

from dataclasses import replace

from dohle.core.ids import BrokerId
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition

FOLLOWER = BrokerId(2)


def partition_of(node: Node, topic: str = "t", index: int = 0) -> Partition:
    found = node.broker.partitions.get(topic, index)
    assert found is not None
    return found


def give_follower(node: Node, topic: str = "t", index: int = 0) -> Partition:
    """Have broker 2 be a replica of a partition, and in sync."""
    partition = partition_of(node, topic, index)
    image = partition.image
    partition.follow(
        replace(
            image,
            replicas=(image.leader, FOLLOWER),
            isr=(image.leader, FOLLOWER),
            # Newer than what the controller still has to say of a new partition.
            partition_epoch=image.partition_epoch + 1_000,
        )
    )
    partition.replication.brokers_changed({image.leader: 1, FOLLOWER: 1})
    return partition
