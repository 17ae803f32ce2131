"""Three nodes in the simulator, a topic that all of them lead parts of, and clients that use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from dohle.client import (
    Admin,
    Beginning,
    ClientConfig,
    Cluster,
    Consumer,
    ConsumerConfig,
    IsolationLevel,
    NewTopic,
    Producer,
    ProducerConfig,
)
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.coordination.partitioning import partition_for
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from dohle.server.partitions.partitions import Partition
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.world import SECOND_NS, World
from tests.server.replicas.simulated_cluster import CLIENTS_PORT, SimulatedCluster

TOPIC = "t"
PARTITIONS = 3
CLIENT = ClientConfig(request_timeout_ms=3_000, api_timeout_ms=60_000)
WITHIN_S = 120.0
_FOR_EVER_NS = 3600 * SECOND_NS

Work = Callable[[Cluster], Awaitable[Any]]


class Gate:
    """Where a client waits for the test."""

    def __init__(self) -> None:
        self.is_reached = False
        self.is_open = False

    async def passed(self) -> None:
        self.is_reached = True
        while not self.is_open:
            await asyncio.sleep(0.01)


class BrokersStage:
    """Each node leads one partition of the topic, of the groups' and of the transactions' topic."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self._clients = 0

    # Clients

    def begin(self, work: Work) -> Callable[[], Any]:
        """Let a client do something; what is returned waits for it, and returns what came of it."""
        self._clients += 1
        machine = self.world.machine(f"client-{self._clients}")
        found: list[Any] = []

        async def program(host: SimulatedHost) -> None:
            async with Cluster(self.cluster.bootstrap, CLIENT, host=host) as cluster:
                try:
                    found.append(await work(cluster))
                except KafkaError as error:
                    found.append(error)

        machine.start(program)

        def finish() -> Any:
            self.world.run_until(lambda: not machine.is_running, WITHIN_S)
            assert self.world.errors == []
            if isinstance(found[0], KafkaError):
                raise found[0]
            return found[0]

        return finish

    def run(self, work: Work) -> Any:
        return self.begin(work)()

    def ask(self, node_id: BrokerId, ask: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Have a client ask one node and no other."""
        address = Address(self.cluster.machines[node_id].name, CLIENTS_PORT)

        async def work(cluster: Cluster) -> Any:
            connection = await Connection.open(address, CLIENT, cluster.host)
            try:
                return await ask(connection)
            finally:
                await connection.close()

        return self.run(work)

    def read_committed(self) -> set[bytes]:
        async def work(cluster: Cluster) -> set[bytes]:
            config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
            async with Consumer(cluster, config) as consumer:
                starts = {where(number): Beginning() for number in range(PARTITIONS)}
                await consumer.assign(starts, stop_at_end=True)
                return {found.record.value or b"" async for found in consumer}

        found: set[bytes] = self.run(work)
        return found

    def await_read(self, expected: set[bytes]) -> None:
        """Markers are written after the producer has its answer."""
        for _ in range(100):
            if self.read_committed() == expected:
                return
            self.world.run_for(0.2)
        assert self.read_committed() == expected

    # Who is what

    def leader(self, topic: str, index: int) -> BrokerId:
        self.world.run_until(lambda: self.cluster.leader(topic, index) is not None, WITHIN_S)
        found = self.cluster.leader(topic, index)
        assert found is not None
        return found

    def led(self, topic: str, index: int) -> Partition:
        """Return a partition as its leader has it."""
        found = self.cluster.nodes[self.leader(topic, index)].broker.partitions.get(topic, index)
        assert found is not None
        return found

    @property
    def others(self) -> tuple[BrokerId, BrokerId]:
        """Those that are not the active controller, to be cut off from each other."""
        node = next(iter(self.cluster.nodes.values()))
        controller = node.member.quorum.leader.leader_id
        first, second = sorted(set(self.cluster.machines) - {controller})
        return first, second

    def name_at(self, topic: str, node_id: BrokerId, prefix: str) -> str:
        """Return a transactional id or group whose coordinator is a certain node."""
        names = (f"{prefix}{number}" for number in range(100))
        return next(name for name in names if self.leader(topic, partition_for(name, 3)) == node_id)

    def partition_at(self, node_id: BrokerId) -> int:
        """Return a partition of the topic that a certain node leads."""
        return next(each for each in range(PARTITIONS) if self.leader(TOPIC, each) == node_id)

    # Faults

    def cut(self, one: BrokerId, other: BrokerId) -> None:
        here, there = self.cluster.machines[one].name, self.cluster.machines[other].name
        until_ns = self.world.time.now_ns + _FOR_EVER_NS
        self.world.network.cut(here, there, until_ns)
        self.world.network.cut(there, here, until_ns)

    def await_leader_but(self, topic: str, index: int, old: BrokerId) -> BrokerId:
        self.world.run_until(lambda: self.cluster.leader(topic, index) not in (None, old), WITHIN_S)
        return self.leader(topic, index)


def where(number: int) -> TopicPartition:
    return TopicPartition(TopicName(TOPIC), number)


def transactional(transactional_id: str) -> ProducerConfig:
    return ProducerConfig(transactional_id=transactional_id, delivery_timeout_ms=60_000)


async def send_to_all(producer: Producer, value: bytes, *partitions: int) -> None:
    """Send one record to each of some partitions, and wait until all are acknowledged."""
    sent = [
        await producer.send_soon(TOPIC, b"%s-%d" % (value, number), partition=number)
        for number in partitions or range(PARTITIONS)
    ]
    for each in sent:
        await each


@contextmanager
def on_brokers(**properties: str) -> Iterator[BrokersStage]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    world = World(11)
    defaults = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "replica.lag.time.max.ms": "3000",
        "group.initial.rebalance.delay.ms": "0",
    }
    cluster = SimulatedCluster(world, properties={**defaults, **named})
    stage = BrokersStage(cluster)
    cluster.start_all()

    async def set_up(client: Cluster) -> None:
        await Admin(client).create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        async with Producer(client, transactional("first")) as producer:
            await producer.init_transactions()
        config = ConsumerConfig(group_id="first", enable_auto_commit=False)
        async with Consumer(client, config) as consumer:
            await consumer.committed([where(0)])

    try:
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        stage.run(set_up)
        for topic in (TOPIC, CONSUMER_OFFSETS, TRANSACTION_STATE):
            world.run_until(partial(cluster.is_in_sync, topic), WITHIN_S)
            assert {stage.leader(topic, each) for each in range(3)} == set(cluster.machines)
        yield stage
        assert (world.errors, cluster.fatal) == ([], [])
    finally:
        world.close()
