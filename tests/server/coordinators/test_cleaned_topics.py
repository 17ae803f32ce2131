"""The topics of the coordinators are cleaned while in use, and tell the same after a restart."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

from dohle.client import Admin, Cluster, NewTopic, OffsetAndMetadata, Producer, ProducerConfig
from dohle.client.admin.config_values import AlterOp, ConfigChange, ConfigResource, ResourceType
from dohle.client.group.membership import GroupMetadata
from dohle.core.ids import GroupId, TopicName, TopicPartition, TransactionalId
from dohle.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from dohle.server.node import Node
from dohle.storage.log import Log
from tests.server.faults import until
from tests.server.wire import running_node

PROPERTIES = {
    "log.cleaner.backoff.ms": "5",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
SMALL = {"internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0"}
TOPIC = TopicName("orders")
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(3)]
GROUP, FORGOTTEN, IN_TRANSACTIONS = "group", "forgotten", "in transactions"
TRANSACTIONS = 40


class Told(NamedTuple):
    """What the coordinators tell."""

    offsets: list[dict[TopicPartition, OffsetAndMetadata]]
    groups: list[str]
    transaction: tuple[object, ...]


async def told(admin: Admin) -> Told:
    transaction = (await admin.describe_transactions(["tx"])).ok()["tx"]
    return Told(
        [
            dict((await admin.list_group_offsets(group)).ok())
            for group in (GROUP, FORGOTTEN, IN_TRANSACTIONS)
        ],
        sorted(each.group_id for each in await admin.list_groups()),
        (transaction.state, transaction.producer_id, transaction.producer_epoch),
    )


async def fill(node: Node, cluster: Cluster, admin: Admin) -> None:
    """Commit the same offsets again and again, on their own and in transactions."""
    await admin.create_topics([NewTopic(TOPIC, partitions=3, replication_factor=1)])
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        await node.broker.coordinators.internal_topics.ensure(topic)
        changes = [ConfigChange(name, AlterOp.SET, value) for name, value in SMALL.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (await admin.incremental_alter_configs({resource: changes})).ok()
    for number in range(150):
        offsets = {each: OffsetAndMetadata(number, metadata=f"{number}") for each in PARTITIONS}
        (await admin.alter_group_offsets(GROUP, offsets)).ok()
        if number % 50 == 0:
            (await admin.alter_group_offsets(FORGOTTEN, offsets)).ok()
            (await admin.delete_groups([FORGOTTEN])).ok()
    config = ProducerConfig(transactional_id=TransactionalId("tx"), linger_ms=0)
    async with Producer(cluster, config) as producer:
        await producer.init_transactions()
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            await producer.send_soon(TOPIC, b"%d" % number, partition=0)
            await producer.send_offsets_to_transaction(
                {PARTITIONS[0]: OffsetAndMetadata(number)}, GroupMetadata(GroupId(IN_TRANSACTIONS))
            )
            if number % 3:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()


def log_of(node: Node, topic: TopicName) -> Log:
    return node.broker.partitions.of_topic(topic)[0].log


def is_cleaned(log: Log) -> bool:
    """Whether so little is left below the active segment as there are keys."""
    return log.cleaner_offset == log.segments.active.base_offset and log.size < 8_000


def test_groups_and_transactions_are_intact_when_their_topics_were_cleaned(
    tmp_path: Path,
) -> None:
    """Compaction 12."""
    living, killed = tmp_path / "living", tmp_path / "killed"
    expected: list[Told] = []

    async def run() -> None:
        async with running_node(living, PROPERTIES) as node, Cluster(node.bootstrap) as cluster:
            admin = Admin(cluster)
            await fill(node, cluster, admin)
            for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
                log = log_of(node, topic)
                await until(lambda log=log: is_cleaned(log))  # type: ignore[misc]
                assert log.log_end_offset > 80
            expected.append(await told(admin))
            shutil.copytree(living, killed)
        for path in (living, killed):
            async with running_node(path, PROPERTIES) as node, Cluster(node.bootstrap) as cluster:
                await check(cluster)

    async def check(cluster: Cluster) -> None:
        found = await told(Admin(cluster))
        assert found == expected[0]
        assert found.offsets == [
            {each: OffsetAndMetadata(149, metadata="149") for each in PARTITIONS},
            {},
            {PARTITIONS[0]: OffsetAndMetadata(TRANSACTIONS - 2)},
        ]
        # The next producer goes on where the last one ended.
        config = ProducerConfig(transactional_id=TransactionalId("tx"), linger_ms=0)
        async with Producer(cluster, config) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_soon(TOPIC, b"again", partition=0)
            await producer.commit_transaction()

    asyncio.run(run())
