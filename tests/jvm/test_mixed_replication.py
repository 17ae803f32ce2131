"""Partitions with replicas on brokers of both kinds: each copies what the other leads (M3, M10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dohle.client import Admin, Beginning, ClientConfig, Consumer, NewTopic, Producer, run
from dohle.client import Cluster as Client
from dohle.core.ids import TopicName, TopicPartition
from dohle.testing import Cluster
from tests.interop.waiting import wait_until
from tests.jvm.jvm import Jvm
from tests.jvm.mixed import IMPATIENT, KAFKA, kafka_beside

TOPIC = TopicName("mixed")
PARTITIONS = 4
DEADLINE_S = 90.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config={**IMPATIENT, "min.insync.replicas": "2"}) as running:
        yield running


async def create(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        (await Admin(client).create_topics([NewTopic(TOPIC, PARTITIONS, 4)])).ok()


async def write(bootstrap: str, first: int, count: int) -> None:
    async with Client(bootstrap) as client, Producer(client) as producer:
        for number in range(first, first + count):
            sent = await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()
        await sent


async def leaders_and_isrs(bootstrap: str) -> tuple[set[int], list[set[int]]]:
    async with Client(bootstrap, ClientConfig(request_timeout_ms=5_000)) as client:
        described = await Admin(client).describe_topics([TOPIC])
        partitions = described.ok()[TOPIC].partitions.values()
        return {one.leader_id for one in partitions}, [set(one.isr) for one in partitions]


async def read(bootstrap: str, count: int) -> set[int]:
    found: set[int] = set()
    async with Client(bootstrap) as client, Consumer(client) as consumer:
        partitions = (TopicPartition(TOPIC, index) for index in range(PARTITIONS))
        await consumer.assign(dict.fromkeys(partitions, Beginning()))
        while len(found) < count:
            polled = await consumer.poll(timeout_ms=500)
            found |= {int(one.record.value or b"") for one in polled}
    return found


def await_all_in_sync(bootstrap: str) -> set[int]:
    """Wait until every replica is in sync; return who leads."""
    everybody = [{1, 2, 3, KAFKA}] * PARTITIONS
    wait_until(lambda: run(leaders_and_isrs(bootstrap))[1] == everybody, DEADLINE_S)
    return run(leaders_and_isrs(bootstrap))[0]


def are_equal(cluster: Cluster, folder: Path) -> bool:
    """Tell whether all brokers have the same bytes of every partition."""
    directories = [*(cluster.data(node) for node in cluster.nodes), folder / "data"]
    names = [f"{TOPIC}-{partition}/{0:020}.log" for partition in range(PARTITIONS)]
    return all(len({(each / name).read_bytes() for each in directories}) == 1 for name in names)


@pytest.mark.timeout(400)
def test_brokers_of_both_kinds_copy_from_each_other_and_outlive_each_other(
    cluster: Cluster, classpath: str, jvm: Jvm, tmp_path: Path
) -> None:
    """Each leads a partition and follows the rest; what was acknowledged outlives any of them."""
    kafka = kafka_beside(cluster, classpath, tmp_path)
    kafka.format(jvm, cluster.cluster_id)
    with kafka:
        run(create(cluster.bootstrap))
        assert await_all_in_sync(cluster.bootstrap) == {1, 2, 3, KAFKA}
        run(write(cluster.bootstrap, 0, 400))

        kafka.kill()
        run(write(cluster.bootstrap, 400, 400))
        kafka.start()
        assert KAFKA not in await_all_in_sync(cluster.bootstrap)

        cluster.kill(1)
        run(write(cluster.bootstrap, 800, 400))
        cluster.restart(1)
        cluster.wait_until_ready()
        await_all_in_sync(cluster.bootstrap)

        assert run(read(cluster.bootstrap, 1200)) == set(range(1200))
        wait_until(lambda: are_equal(cluster, tmp_path), DEADLINE_S)
        kafka.stop()
    assert "ERROR" not in kafka.log


async def reassign(bootstrap: str, *brokers: int) -> None:
    keys = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    async with Client(bootstrap) as client:
        (await Admin(client).alter_partition_reassignments(dict.fromkeys(keys, brokers))).ok()


async def replicas_in_sync(bootstrap: str) -> set[frozenset[int]]:
    """Return which brokers have partitions; nobody, while one of them is not in sync."""
    async with Client(bootstrap, ClientConfig(request_timeout_ms=5_000)) as client:
        described = await Admin(client).describe_topics([TOPIC])
        partitions = described.ok()[TOPIC].partitions.values()
        return {
            frozenset(one.replicas) if set(one.isr) == set(one.replicas) else frozenset()
            for one in partitions
        }


@pytest.mark.timeout(400)
def test_partitions_move_from_one_kind_to_the_other_and_back(
    cluster: Cluster, classpath: str, jvm: Jvm, tmp_path: Path
) -> None:
    """W3: all records go along, both kinds give up what they do not have any more."""
    kafka = kafka_beside(cluster, classpath, tmp_path)
    kafka.format(jvm, cluster.cluster_id)
    folders = [cluster.data(1) / f"{TOPIC}-0", tmp_path / "data" / f"{TOPIC}-0"]

    def move(*brokers: int) -> None:
        run(reassign(cluster.bootstrap, *brokers))
        wanted = {frozenset(brokers)}
        wait_until(lambda: run(replicas_in_sync(cluster.bootstrap)) == wanted, DEADLINE_S)

    with kafka:
        run(create(cluster.bootstrap))
        await_all_in_sync(cluster.bootstrap)
        move(1, 2)
        run(write(cluster.bootstrap, 0, 400))
        wait_until(lambda: not folders[1].exists(), DEADLINE_S)
        move(KAFKA, 3)
        run(write(cluster.bootstrap, 400, 400))
        wait_until(lambda: not folders[0].exists(), DEADLINE_S)
        assert run(leaders_and_isrs(cluster.bootstrap))[0] == {KAFKA}
        assert run(read(cluster.bootstrap, 800)) == set(range(800))
        move(1, 2, 3)
        run(write(cluster.bootstrap, 800, 400))
        wait_until(lambda: not folders[1].exists(), DEADLINE_S)
        assert run(read(cluster.bootstrap, 1200)) == set(range(1200))
        kafka.stop()
    errors = [line for line in kafka.log.splitlines() if "ERROR" in line]
    # That is how it takes any new replica of a topic that it knows.
    assert [line for line in errors if "to exist, but it was missing. Creating" not in line] == []
