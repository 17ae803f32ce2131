"""One topic on real nodes in the simulator, and somebody who uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dohle.client import (
    Admin,
    At,
    Beginning,
    ClientConfig,
    Cluster,
    Consumer,
    ConsumerConfig,
    NewTopic,
    Producer,
    ProducerConfig,
)
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.server.partitions.partitions import Partition
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.world import World
from tests.server.replicas.simulated_cluster import (
    CLIENTS_PORT,
    SimulatedCluster,
    committed_bytes,
)

TOPIC = "t"
WHERE = TopicPartition(TopicName(TOPIC), 0)
CLIENT = ClientConfig(request_timeout_ms=3_000, api_timeout_ms=60_000)
WITHIN_S = 120.0


class Stage:
    """A cluster with one topic of three replicas, and somebody who uses it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self._client = cluster.world.machine("client")

    @property
    def _bootstrap(self) -> str:
        """Where to ask: the leader, if there is one, since others may not answer."""
        leader = self.cluster.leader(TOPIC, 0)
        if leader is None:
            return self.cluster.bootstrap
        return f"{self.cluster.machines[leader].name}:{CLIENTS_PORT}"

    def run(self, work: Callable[[Cluster], Awaitable[Any]]) -> Any:
        """Let a client do something, and return what came of it."""
        found: list[Any] = []

        async def program(host: SimulatedHost) -> None:
            async with Cluster(self._bootstrap, CLIENT, host=host) as cluster:
                try:
                    found.append(await work(cluster))
                except KafkaError as error:
                    found.append(error)

        self._client.start(program)
        self.cluster.world.run_until(lambda: not self._client.is_running, WITHIN_S)
        assert self.cluster.world.errors == []
        if isinstance(found[0], KafkaError):
            raise found[0]
        return found[0]

    def produce(self, *values: bytes, config: ProducerConfig | None = None) -> list[int]:
        """Send, one after the other, and return the offsets."""

        async def work(cluster: Cluster) -> list[int]:
            producer = Producer(cluster, config or ProducerConfig())
            try:
                return [
                    (await (await producer.send_soon(TOPIC, value, partition=0))).offset
                    for value in values
                ]
            finally:
                await producer.close(flush=False)

        found: list[int] = self.run(work)
        return found

    def read(self, start: int = 0, config: ConsumerConfig | None = None) -> list[bytes]:
        """Read to the end."""

        async def work(cluster: Cluster) -> list[bytes]:
            async with Consumer(cluster, config or ConsumerConfig()) as consumer:
                begin = At(start) if start else Beginning()
                await consumer.assign({WHERE: begin}, stop_at_end=True)
                return [found.record.value or b"" async for found in consumer]

        found: list[bytes] = self.run(work)
        return found

    @property
    def leader(self) -> BrokerId:
        self.cluster.world.run_until(lambda: self.cluster.leader(TOPIC, 0) is not None, WITHIN_S)
        found = self.cluster.leader(TOPIC, 0)
        assert found is not None
        return found

    def replica(self, node_id: BrokerId) -> Partition:
        """Return what a node has of the topic."""
        found = self.cluster.nodes[node_id].broker.partitions.get(TOPIC, 0)
        assert found is not None
        return found

    def await_in_sync(self) -> None:
        self.cluster.world.run_until(lambda: self.cluster.is_in_sync(TOPIC), WITHIN_S)
        assert len({committed_bytes(each) for _, each in self.cluster.replicas(TOPIC)}) == 1

    def await_isr(self, count: int) -> None:
        def is_so() -> bool:
            image = self.cluster.image(TOPIC, 0)
            return image is not None and len(image.isr) == count

        self.cluster.world.run_until(is_so, WITHIN_S)


@contextmanager
def on_stage(
    more: Mapping[str, str] | None = None,
    *,
    nodes: int = 3,
    replicas: tuple[int, ...] = (1, 2, 3),
    metadata_version: int | None = None,
    **properties: str,
) -> Iterator[Stage]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    named.update(more or {})
    world = World(5)
    cluster = SimulatedCluster(world, nodes, named, metadata_version=metadata_version)
    stage = Stage(cluster)
    cluster.start_all()
    try:
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        topic = NewTopic(TOPIC, assignments={0: replicas})
        stage.run(lambda client: Admin(client).create_topics([topic]))
        yield stage
        assert (world.errors, cluster.fatal) == ([], [])
    finally:
        world.close()
