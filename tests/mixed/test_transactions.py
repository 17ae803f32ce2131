"""Transactions over brokers of both kinds: a coordinator on one, partitions on the other (M3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dohle.client import (
    Admin,
    Beginning,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    IsolationLevel,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
    UpgradeType,
    run,
)
from dohle.client import Cluster as Client
from dohle.client.group.membership import GroupMetadata
from dohle.core.ids import GroupId, TopicName, TopicPartition
from tests.interop.waiting import wait_until
from tests.jvm.jvm import Jvm
from tests.mixed.administration import OFFSETS, TRANSACTIONS, Operator, one_of_each
from tests.mixed.judge import judge
from tests.mixed.nodes import DEADLINE_S, MixedCluster

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
CLIENT = ClientConfig(api_timeout_ms=60_000)


class Copier:
    """Writes transactions over all partitions of a topic and a group's offsets."""

    def __init__(self, cluster: MixedCluster, topic: TopicName) -> None:
        self._bootstrap = cluster.bootstrap
        self._topic = topic
        self._group = GroupMetadata(GroupId(f"group-of-{topic}"))
        self._rounds = 0
        self.committed: list[bytes] = []

    def initialize(self) -> None:
        """Have a producer id, which makes the internal topic too."""

        async def work() -> None:
            async with Client(self._bootstrap, CLIENT) as client, self._producer(client) as one:
                await one.init_transactions()

        run(work())

    def _producer(self, client: Client) -> Producer:
        return Producer(client, ProducerConfig(transactional_id=f"writer-of-{self._topic}"))

    def transact(self, move: Callable[[], None]) -> None:
        """Commit a transaction, abort one, and move the coordinator amid a third."""

        async def work() -> None:
            async with Client(self._bootstrap, CLIENT) as client, self._producer(client) as one:
                await one.init_transactions()
                for ending in ("commit", "abort", "move and commit"):
                    await self._transact(one, ending, move)

        run(work())

    async def _transact(self, producer: Producer, ending: str, move: Callable[[], None]) -> None:
        self._rounds += 1
        producer.begin_transaction()
        values = [b"%d %d" % (self._rounds, partition) for partition in range(PARTITIONS)]
        for partition, value in enumerate(values):
            await producer.send_soon(self._topic, value, partition=partition)
        await producer.send_offsets_to_transaction(
            {TopicPartition(self._topic, 0): OffsetAndMetadata(self._rounds)}, self._group
        )
        if ending == "abort":
            await producer.abort_transaction()
            return
        if ending == "move and commit":
            await producer.flush()
            await asyncio.get_running_loop().run_in_executor(None, move)
        await producer.commit_transaction()
        self.committed += values

    def seen(self) -> list[bytes]:
        """Return what readers of committed records find."""

        async def work() -> list[bytes]:
            config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
            keys = (TopicPartition(self._topic, index) for index in range(PARTITIONS))
            async with (
                Client(self._bootstrap, CLIENT) as client,
                Consumer(client, config) as consumer,
            ):
                await consumer.assign(dict.fromkeys(keys, Beginning()), stop_at_end=True)
                return [found.record.value or b"" async for found in consumer]

        return run(work())

    def offset(self, operator: Operator) -> int:
        """Return what the group has committed."""

        async def ask(admin: Admin) -> int:
            found = await admin.list_group_offsets(self._group.group_id)
            return found.ok()[TopicPartition(self._topic, 0)].offset

        return operator.ask(ask)

    def judge(self, operator: Operator) -> None:
        wait_until(lambda: sorted(self.seen()) == sorted(self.committed), DEADLINE_S)
        assert self.offset(operator) == self._rounds


def set_transaction_version(operator: Operator, cluster: MixedCluster, level: int) -> None:
    """Change the feature, and see that brokers of both kinds have heard of it."""

    async def update(admin: Admin) -> None:
        kind = UpgradeType.SAFE_DOWNGRADE if level == 1 else UpgradeType.UPGRADE
        await admin.update_features({"transaction.version": level}, upgrade_type=kind)

    async def ask(address: str) -> int:
        async with Client(address, CLIENT) as client:
            features = await Admin(client).describe_features()
            return features.finalized["transaction.version"][1]

    operator.ask(update)
    for node in cluster.brokers:
        wait_until(lambda node=node: run(ask(node.client)) == level, DEADLINE_S)  # type: ignore[misc]


def test_transactions_span_brokers_of_both_kinds(cluster: MixedCluster, operator: Operator) -> None:
    """H6, H7: markers and questions go from each kind to the other, in both transaction versions;
    what is open when its coordinator changes is ended by the next, which is of the other kind.
    """
    kafka, dohle = one_of_each(cluster)
    topic = operator.create("transactions", PARTITIONS)
    copier = Copier(cluster, topic)
    copier.initialize()
    for level in (1, 2):
        set_transaction_version(operator, cluster, level)
        for coordinator, other in ((kafka, dohle), (dohle, kafka)):
            operator.let_lead(TRANSACTIONS, coordinator)
            # Who keeps the group's offsets is asked by who ends the transaction.
            copier.transact(lambda other=other: operator.let_lead(TRANSACTIONS, other))  # type: ignore[misc]
            copier.judge(operator)
            operator.let_lead(OFFSETS, coordinator)
    judge(cluster, operator)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_client_consumes_and_produces_exactly_once(
    cluster: MixedCluster, operator: Operator, jvm: Jvm, protocol: str
) -> None:
    """Its group, its transaction, its input and its output are with one kind and the other."""
    kafka, dohle = one_of_each(cluster)
    operator.let_lead(OFFSETS, kafka)
    operator.let_lead(TRANSACTIONS, dohle)
    topics = [operator.create("exactly-once", 1) for _ in range(2)]
    operator.let_lead(topics[0], dohle)
    operator.let_lead(topics[1], kafka)
    group = f"exactly-once-{topics[0]}"
    ran = jvm.run("ExactlyOnce", cluster.bootstrap, *topics, group, protocol)
    assert ran.code == 0, ran
    judge(cluster, operator)
