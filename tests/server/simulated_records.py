"""A topic with a replica on each broker of a simulated cluster, and what is written to it."""

from __future__ import annotations

from dohle.client import Admin, Beginning, Cluster, Consumer, NewTopic, Producer
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.metadata.partition import PartitionImage
from dohle.server.partitions.partitions import Partition
from tests.server.simulated_cluster import BROKERS, SimulatedCluster

TOPIC = TopicName("t")
WHERE = TopicPartition(TOPIC, 0)


def create_topic(cluster: SimulatedCluster, leader: int = 4) -> None:
    """Have a topic whose one partition is on both brokers, and wait until both have heard of it."""
    replicas = (leader, *(id for id in BROKERS if id != leader))

    async def program(admin: Admin) -> None:
        created = await admin.create_topics([NewTopic(TOPIC, assignments={0: replicas})])
        assert TOPIC in created.ok()

    cluster.ask(program)
    cluster.world.run_until(lambda: is_in_sync(cluster), 30)


def produce(cluster: SimulatedCluster, *values: bytes) -> None:
    """Write with acks=all, one after the other."""

    async def program(client: Cluster) -> None:
        async with Producer(client) as producer:
            for value in values:
                await producer.send(TOPIC, value, partition=0)

    cluster.use(program)


def read(cluster: SimulatedCluster) -> list[bytes]:
    """Read all that there is."""

    async def program(client: Cluster) -> list[bytes]:
        async with Consumer(client) as consumer:
            await consumer.assign({WHERE: Beginning()}, stop_at_end=True)
            return [found.record.value or b"" async for found in consumer]

    return cluster.use(program)


def image(cluster: SimulatedCluster) -> PartitionImage:
    """Return the partition as the active controller knows it."""
    found = cluster.image(cluster.await_active()).partition(TOPIC, 0)
    assert found is not None
    return found


def replica(cluster: SimulatedCluster, node_id: int) -> Partition | None:
    """Return what a broker has of it."""
    return cluster.nodes[node_id].broker.partitions.get(TOPIC, 0)


def is_in_sync(cluster: SimulatedCluster) -> bool:
    """Tell whether both brokers are in the ISR, know that, and have the same records."""
    found = [replica(cluster, id) for id in BROKERS if id in cluster.started]
    has_all = len(found) == len(BROKERS) and all(
        each is not None and set(each.image.isr) == set(map(BrokerId, BROKERS)) for each in found
    )
    return has_all and len({each.log.log_end_offset for each in found if each is not None}) == 1
