"""What an operator does to a cluster and sees of it, whoever its nodes are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import TypeVar

from dohle.client import (
    Admin,
    ClientConfig,
    ElectionType,
    End,
    NewTopic,
    PartitionInfo,
    QuorumDescription,
    run,
)
from dohle.client import Cluster as Client
from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName, TopicPartition
from tests.interop.waiting import wait_until
from tests.mixed.nodes import DEADLINE_S, Kind, MixedCluster, Node

T = TypeVar("T")

#: The topics of coordinators: who leads a partition coordinates.
OFFSETS = TopicName("__consumer_offsets")
TRANSACTIONS = TopicName("__transaction_state")

#: A broker that is away is noticed soon, and others are asked.
_CLIENT = ClientConfig(request_timeout_ms=10_000, api_timeout_ms=60_000)
_numbers = count(1)


class Operator:
    """Asks the brokers of one cluster."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster

    def ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Let an admin client work through the brokers that run."""
        running = (node.client for node in self._cluster.brokers if node.is_running)

        async def connected() -> T:
            async with Client(",".join(running), _CLIENT) as client:
                return await work(Admin(client))

        return run(connected())

    # Topics

    def create(
        self,
        what: str,
        partitions: int = 3,
        *,
        replicas: Sequence[Node] = (),
        config: Mapping[str, str] | None = None,
    ) -> TopicName:
        """Create a topic with a name of its own; led by the replicas in turn, if they are told."""
        name = TopicName(f"{what}-{next(_numbers)}")
        ids = [node.id for node in replicas or self._cluster.brokers]
        assignments = {
            index: [*ids[index % len(ids) :], *ids[: index % len(ids)]]
            for index in range(partitions)
        }
        topic = NewTopic(name, assignments=assignments, configs=dict(config or {}))

        async def create(admin: Admin) -> None:
            (await admin.create_topics([topic])).ok()

        self.ask(create)
        self.await_in_sync(name)
        return name

    def partitions(self, topic: TopicName) -> Mapping[int, PartitionInfo]:
        async def describe(admin: Admin) -> Mapping[int, PartitionInfo]:
            return (await admin.describe_topics([topic])).ok()[topic].partitions

        return self.ask(describe)

    def leaders(self, topic: TopicName) -> set[int]:
        return {each.leader_id for each in self.partitions(topic).values()}

    def topics(self) -> dict[TopicName, Mapping[int, PartitionInfo]]:
        """Return all topics, internal ones too."""

        async def list_them(admin: Admin) -> dict[TopicName, Mapping[int, PartitionInfo]]:
            found = await admin.list_topics()
            return {name: topic.partitions for name, topic in found.items()}

        return self.ask(list_them)

    def await_in_sync(self, *topics: TopicName) -> None:
        """Wait until all replicas are in the ISR; of all topics, if none is told."""

        def is_in_sync() -> bool:
            found = self.topics()
            return found.keys() >= set(topics) and all(
                each.leader_id >= 0 and set(each.isr) == set(each.replicas)
                for name in (topics or found)
                for each in found[name].values()
            )

        wait_until(is_in_sync, DEADLINE_S)

    def ends(self, topic: TopicName) -> dict[int, int]:
        """Return the high watermark of each partition."""

        partitions = self.partitions(topic)

        async def work(admin: Admin) -> dict[int, int]:
            keys = [TopicPartition(topic, index) for index in partitions]
            found = (await admin.list_offsets(dict.fromkeys(keys, End()))).ok()
            return {key.partition: each.offset for key, each in found.items()}

        return self.ask(work)

    # Leaders and replicas

    def reassign(self, topic: TopicName, *replicas: Node) -> None:
        """Give all partitions these replicas, the first of which is to lead, and wait for it."""
        ids = tuple(node.id for node in replicas)
        keys = [TopicPartition(topic, index) for index in self.partitions(topic)]

        async def alter(admin: Admin) -> None:
            (await admin.alter_partition_reassignments(dict.fromkeys(keys, ids))).ok()

        def is_done() -> bool:
            found = self.partitions(topic).values()
            return all(each.replicas == ids and set(each.isr) == set(ids) for each in found)

        self.ask(alter)
        wait_until(is_done, DEADLINE_S)

    def let_lead(self, topic: TopicName, leader: Node) -> None:
        """Let a broker lead all partitions of a topic, by its place and an election."""
        (replicas,) = {frozenset(each.replicas) for each in self.partitions(topic).values()}
        others = [node for node in self._cluster.brokers if node.id in replicas - {leader.id}]
        self.reassign(topic, leader, *others)
        self.await_leader(topic, leader, ElectionType.PREFERRED)

    def elect(self, topic: TopicName, kind: ElectionType) -> None:
        """Ask for an election; whether it was needed is for others to see."""
        keys = [TopicPartition(topic, index) for index in self.partitions(topic)]

        async def elect(admin: Admin) -> None:
            await admin.elect_leaders(kind, keys)

        self.ask(elect)

    def await_leader(self, topic: TopicName, leader: Node, election: ElectionType) -> None:
        """Have elections until a broker leads all partitions, which may not be in sync yet."""

        def leads() -> bool:
            try:
                if self.leaders(topic) != {leader.id}:
                    self.elect(topic, election)
                return self.leaders(topic) == {leader.id}
            except KafkaError:
                return False

        wait_until(leads, DEADLINE_S)

    # The quorum

    def quorum(self) -> QuorumDescription:
        async def describe(admin: Admin) -> QuorumDescription:
            return await admin.describe_quorum()

        return self.ask(describe)

    def active_controller(self) -> Node:
        """Return who leads the quorum, as soon as somebody that runs does."""
        found: list[Node] = []

        def is_there() -> bool:
            try:
                node = self._cluster.nodes.get(self.quorum().leader_id)
            except KafkaError:
                return False
            if node is not None and node.is_running:
                found.append(node)
            return bool(found)

        wait_until(is_there, DEADLINE_S)
        return found[0]


def one_of_each(cluster: MixedCluster) -> list[Node]:
    """Return a broker of Kafka, and one of dohle."""
    return [cluster.broker_of(kind) for kind in Kind]
