"""Transactions over brokers of both kinds: a coordinator on one, partitions on the other (M3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.client import (
    Admin,
    Beginning,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    IsolationLevel,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
    UpgradeType,
    run,
)
from dohle.client import Cluster as Client
from dohle.client.group.membership import GroupMetadata
from dohle.core.ids import GroupId, TopicName, TopicPartition
from dohle.testing import Cluster
from tests.interop.waiting import wait_until
from tests.jvm.jvm import Jvm
from tests.jvm.mixed import IMPATIENT, KAFKA, kafka_beside

TOPIC = TopicName("mixed")
PARTITIONS = 4
#: With so many ids brokers of both kinds coordinate some transactions, and some groups.
IDS = 16
CLIENT = ClientConfig(api_timeout_ms=60_000)
DEADLINE_S = 90.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config=IMPATIENT) as running:
        yield running


async def create(bootstrap: str) -> set[int]:
    """Create the topic; return who leads it."""
    async with Client(bootstrap, CLIENT) as client:
        (await Admin(client).create_topics([NewTopic(TOPIC, PARTITIONS, 4)])).ok()
        described = await Admin(client).describe_topics([TOPIC])
        return {one.leader_id for one in described.ok()[TOPIC].partitions.values()}


async def transact(bootstrap: str, name: str) -> set[bytes]:
    """Write transactions over all partitions and a group's offsets; return what is committed."""
    committed = set()
    async with Client(bootstrap, CLIENT) as client:
        for number in range(IDS):
            config = ProducerConfig(transactional_id=f"tx-{number}")
            async with Producer(client, config) as producer:
                await producer.init_transactions()
                for commit in (True, False):
                    producer.begin_transaction()
                    values = [b"%s-%d-%d" % (name.encode(), number, p) for p in range(PARTITIONS)]
                    for partition, value in enumerate(values):
                        await producer.send(TOPIC, value, partition=partition)
                    offset = OffsetAndMetadata(100 + number if commit else 7)
                    await producer.send_offsets_to_transaction(
                        {TopicPartition(TOPIC, 0): offset}, GroupMetadata(GroupId(f"g-{number}"))
                    )
                    if commit:
                        await producer.commit_transaction()
                        committed.update(values)
                    else:
                        await producer.abort_transaction()
    return committed


async def coordinators(bootstrap: str) -> set[int]:
    async with Client(bootstrap, CLIENT) as client:
        names = [f"tx-{number}" for number in range(IDS)]
        found = (await Admin(client).describe_transactions(names)).ok()
        return {each.coordinator_id for each in found.values()}


async def read(bootstrap: str) -> list[bytes]:
    async with Client(bootstrap, CLIENT) as client:
        config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
        async with Consumer(client, config) as consumer:
            partitions = (TopicPartition(TOPIC, index) for index in range(PARTITIONS))
            await consumer.assign(dict.fromkeys(partitions, Beginning()), stop_at_end=True)
            return [found.record.value or b"" async for found in consumer]


async def offsets(bootstrap: str) -> list[int | None]:
    found = []
    async with Client(bootstrap, CLIENT) as client:
        for number in range(IDS):
            config = ConsumerConfig(group_id=f"g-{number}", enable_auto_commit=False)
            async with Consumer(client, config) as consumer:
                committed = await consumer.committed([TopicPartition(TOPIC, 0)])
                known = committed.get(TopicPartition(TOPIC, 0))
                found.append(None if known is None else known.offset)
    return found


async def downgrade(bootstrap: str) -> None:
    """Let producers add their partitions themselves, as before KIP-890's second part."""
    async with Client(bootstrap, CLIENT) as client:
        await Admin(client).update_features(
            {"transaction.version": 1}, upgrade_type=UpgradeType.SAFE_DOWNGRADE
        )


@pytest.mark.timeout(400)
def test_transactions_span_brokers_of_both_kinds(
    cluster: Cluster, classpath: str, jvm: Jvm, tmp_path: Path
) -> None:
    """H6, H7: markers and questions go from each kind to the other, in both transaction versions;
    what was open when a broker was killed is ended by others.
    """
    kafka = kafka_beside(cluster, classpath, tmp_path)
    kafka.format(jvm, cluster.cluster_id)
    with kafka:
        assert run(create(cluster.bootstrap)) == {1, 2, 3, KAFKA}
        committed = run(transact(cluster.bootstrap, "v2"))
        assert run(coordinators(cluster.bootstrap)) == {1, 2, 3, KAFKA}
        wait_until(lambda: sorted(run(read(cluster.bootstrap))) == sorted(committed), DEADLINE_S)
        assert run(offsets(cluster.bootstrap)) == [100 + number for number in range(IDS)]

        run(downgrade(cluster.bootstrap))
        committed |= run(transact(cluster.bootstrap, "v1"))
        wait_until(lambda: sorted(run(read(cluster.bootstrap))) == sorted(committed), DEADLINE_S)

        kafka.kill()
        committed |= run(transact(cluster.bootstrap, "without"))
        kafka.start()
        cluster.kill(1)
        committed |= run(transact(cluster.bootstrap, "again"))
        cluster.restart(1)
        cluster.wait_until_ready()
        wait_until(lambda: sorted(run(read(cluster.bootstrap))) == sorted(committed), DEADLINE_S)
        kafka.stop()
    assert "ERROR" not in kafka.log
