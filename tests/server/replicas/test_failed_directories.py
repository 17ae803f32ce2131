"""A disk of a broker fails: others lead what was on it, and its other disks go on (D1-D4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from errno import EIO

import pytest

from dohle.client import Admin, Cluster, NewTopic, Producer, ProducerConfig
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.image import ClusterImage
from dohle.metadata.partition import PartitionImage
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.world import SECOND_NS
from tests.server.replicas.stage import TOPIC, WITHIN_S, Stage, on_stage

#: Goes to the other directory of each broker, because the first one has a log already.
ELSEWHERE = "u"


@contextmanager
def with_two_disks() -> Iterator[Stage]:
    with on_stage(log_dirs="/data,/other", metadata_log_dir="/meta") as stage:
        stage.run(lambda client: Admin(client).create_topics([NewTopic(ELSEWHERE, 1, 3)]))
        stage.produce(b"a")
        stage.await_in_sync()
        for node in stage.cluster.nodes.values():
            places = {
                log.partition.topic: directory.path
                for directory in node.logs.directories
                for log in directory.logs.values()
            }
            assert places == {TOPIC: "/data", ELSEWHERE: "/other"}
        yield stage


def break_disk(stage: Stage, broker_id: BrokerId, path: str = "/data") -> None:
    stage.cluster.machines[broker_id].files.fail(list(Operation), path, EIO)


def image(stage: Stage) -> ClusterImage:
    return max((node.images.image for node in stage.cluster.nodes.values()), key=lambda i: i.offset)


def partition(stage: Stage, topic: str = TOPIC) -> PartitionImage:
    return image(stage).topics[TopicName(topic)].partitions[0]


def produce_to(topic: str, value: bytes) -> Callable[[Cluster], Awaitable[int]]:
    async def work(cluster: Cluster) -> int:
        async with Producer(cluster, ProducerConfig()) as producer:
            return (await (await producer.send_soon(topic, value, partition=0))).offset

    return work


def test_leadership_moves_away_from_a_disk_that_fails_and_other_disks_go_on() -> None:
    """W5, and D3: the produce request that meets the failure is sent again to the next leader."""
    with with_two_disks() as stage:
        old = stage.leader
        elsewhere = partition(stage, ELSEWHERE)
        break_disk(stage, old)
        begun_s = stage.cluster.world.now_s
        assert stage.run(produce_to(TOPIC, b"b")) == 1
        assert stage.cluster.world.now_s - begun_s < 5, "long before a session ends"
        after = partition(stage)
        assert after.leader not in (old, -1)
        assert old not in after.isr
        assert [len(each.log_dirs) for each in image(stage).brokers.values()].count(1) == 1
        assert not image(stage).brokers[old].fenced
        # What is on the other disk has the same leader, in the same epoch.
        assert partition(stage, ELSEWHERE).leader_epoch == elsewhere.leader_epoch
        assert stage.run(produce_to(ELSEWHERE, b"x")) == 0
        assert set(partition(stage, ELSEWHERE).isr) == set(stage.cluster.machines)
        assert stage.read() == [b"a", b"b"]
        metadata = stage.run(lambda client: Admin(client).describe_topics([TOPIC, ELSEWHERE]))
        offline = {
            name: topic.partitions[0].offline_replicas for name, topic in metadata.done.items()
        }
        assert offline == {TOPIC: (old,), ELSEWHERE: ()}


def test_a_follower_whose_disk_fails_leaves_the_isr_and_does_not_come_back_to_it() -> None:
    with with_two_disks() as stage:
        bad = next(each for each in stage.cluster.machines if each != stage.leader)
        break_disk(stage, bad)
        assert stage.produce(b"b") == [1]
        stage.await_isr(2)
        assert bad not in partition(stage).isr
        epoch = partition(stage).partition_epoch
        stage.cluster.world.run_for(60)
        assert partition(stage).partition_epoch == epoch
        assert stage.produce(b"c") == [2]


def test_a_disk_that_is_mended_is_used_again_after_a_restart() -> None:
    """W5: the replica is where the metadata log says that it is, and catches up."""
    with with_two_disks() as stage:
        old = stage.leader
        break_disk(stage, old)
        stage.run(produce_to(TOPIC, b"b"))
        stage.cluster.machines[old].files.heal()
        stage.cluster.kill(old)
        stage.cluster.start(old)
        stage.cluster.world.run_until(lambda: stage.cluster.is_up, WITHIN_S)
        stage.await_in_sync()
        assert len(image(stage).brokers[old].log_dirs) == 2


@pytest.mark.parametrize("path", ["/data", "/other"])
def test_a_new_topic_goes_to_the_disk_that_is_left_and_is_told_where_it_is(path: str) -> None:
    """D4: what is new cannot be on the failed disk. UNASSIGNED becomes the directory it is in."""
    with with_two_disks() as stage:
        bad = stage.leader
        break_disk(stage, bad, path)
        for topic in (TOPIC, ELSEWHERE):
            stage.run(produce_to(topic, b"b"))
        stage.run(lambda client: Admin(client).create_topics([NewTopic("new", 1, 3)]))
        left = stage.cluster.nodes[bad].logs.online_directories[0].directory_id

        def is_assigned() -> bool:
            return partition(stage, "new").directory_of(bad) == left

        stage.cluster.world.run_until(is_assigned, WITHIN_S)
        assert stage.run(produce_to("new", b"x")) == 0


def test_a_broker_that_cannot_tell_of_a_failed_disk_stops() -> None:
    """D3: log.dir.failure.timeout.ms."""
    with with_two_disks() as stage:
        bad, world = stage.leader, stage.cluster.world
        name, until_ns = stage.cluster.machines[bad].name, world.time.now_ns + 100 * SECOND_NS
        for other in stage.cluster.machines.values():
            if other.name != name:
                world.network.cut(other.name, name, until_ns)
                world.network.cut(name, other.name, until_ns)
        break_disk(stage, bad)
        log = stage.cluster.nodes[bad].broker.partitions.of_topic(TopicName(TOPIC))[0].log
        with pytest.raises(KafkaError):
            stage.produce(b"b", config=ProducerConfig(delivery_timeout_ms=4_000))
        assert not log.disk.is_online()
        world.run_until(lambda: bad not in stage.cluster.nodes, 40)
        (reason,) = stage.cluster.fatal
        assert "could not be told that a log directory has failed within 30000 ms" in reason
        stage.cluster.fatal.clear()
        assert stage.read() == [b"a"]


def test_a_broker_whose_last_directory_fails_stops() -> None:
    with with_two_disks() as stage:
        bad = stage.leader
        for path in ("/data", "/other"):
            break_disk(stage, bad, path)
        for topic in (TOPIC, ELSEWHERE):
            stage.run(produce_to(topic, b"b"))
        stage.cluster.world.run_until(lambda: bad not in stage.cluster.nodes, WITHIN_S)
        assert stage.cluster.fatal == [f"node {bad}: every log directory has failed"]
        stage.cluster.fatal.clear()
        assert stage.read() == [b"a", b"b"]
