"""A node with a remote tier, in the simulator, that dies again and again (T15a, T27)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from dohle.client import Admin, Beginning, Cluster, Consumer, ConsumerConfig, Producer
from dohle.client.admin.values import NewTopic
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.ids import TopicName, TopicPartition
from dohle.server.node import Node
from dohle.storage.log import Log
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.world import World
from dohle.tiering.layout import INDEXES, LOG, MANIFEST, object_key
from dohle.tiering.segments import SegmentState

_TOPIC = "t"
_KEY = TopicPartition(TopicName(_TOPIC), 0)
_COUNT = 120
_NODE = {
    **SINGLE_NODE,
    "listeners": "PLAINTEXT://n1:9092",
    "log.dirs": "/data",
    "remote.log.storage.system.enable": "true",
    "rsm.config.url": "/store",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
}
_TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "600",
    "local.retention.ms": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


class TieredWorld:
    """One node, and clients on machines of their own."""

    def __init__(self, seed: int, **topic: str) -> None:
        self.world = World(seed)
        self.machine: Machine = self.world.machine("n1")
        self.topic = {**_TIERED, **{name.replace("_", "."): text for name, text in topic.items()}}
        self.is_started = False
        self.node: Node
        self.acknowledged: dict[int, bytes] = {}
        self.world.on_exit = lambda machine: self.start() if machine is self.machine else None
        self.start()
        self.run(self._create)

    def start(self) -> None:
        """Start the node, as new or after its end."""

        async def program(host: SimulatedHost) -> None:
            config, _ = BrokerConfig.from_properties(_NODE)
            self.node = Node(config, host=host)
            await self.node.start()
            self.is_started = True
            await host.stopping.wait()

        self.is_started = False
        self.machine.start(program)
        self.world.run_until(lambda: self.is_started, 120)

    def kill(self) -> None:
        """Kill the node, and start it again."""
        self.machine.kill()
        self.start()

    def run(self, program: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        """Run a client to its end."""
        machine = self.world.machine(f"client-{len(self.world.machines)}")

        async def main(host: SimulatedHost) -> None:
            async with Cluster("n1:9092", host=host) as cluster:
                await program(cluster)

        machine.start(main)
        self.world.run_until(machine.main.done, 300)
        machine.main.result()

    async def _create(self, cluster: Cluster) -> None:
        created = await Admin(cluster).create_topics([NewTopic(_TOPIC, 1, 1, configs=self.topic)])
        created.ok()

    def produce(self, count: int = _COUNT) -> None:
        """Write records, and note those that were acknowledged."""

        async def program(cluster: Cluster) -> None:
            async with Producer(cluster) as producer:
                for number in range(count):
                    value = f"{len(self.acknowledged)} {number}".encode().ljust(60)
                    sent = await producer.send(_TOPIC, value, partition=0)
                    self.acknowledged[sent.offset] = value

        self.run(program)

    def read(self) -> dict[int, bytes]:
        """Read all there is, from the beginning."""
        found: dict[int, bytes] = {}

        async def program(cluster: Cluster) -> None:
            async with Consumer(cluster, ConsumerConfig()) as consumer:
                await consumer.assign({_KEY: Beginning()}, stop_at_end=True)
                async for each in consumer:
                    found[each.record.offset] = each.record.value or b""

        self.run(program)
        return found

    @property
    def log(self) -> Log:
        """The log of the topic."""
        partition = self.node.broker.partitions.get(*_KEY)
        assert partition is not None
        return partition.log

    def objects(self) -> set[str]:
        """The keys in the store."""
        prefix = "/store/"
        paths = [path for path in self.machine.files.files() if path.startswith(prefix)]
        return {path.removeprefix(prefix) for path in paths}

    def check_tier(self) -> None:
        """What the metadata has as copied is whole, and it knows of all that is in the store."""
        partition = self.node.broker.partitions.get(*_KEY)
        tier = self.node.broker.tier
        assert tier is not None
        assert partition is not None
        cache = tier.feed.cache((partition.topic_id, 0))
        assert cache is not None
        known = {object_key(each, suffix) for each in cache for suffix in (LOG, INDEXES, MANIFEST)}
        assert {key.removesuffix(".tmp") for key in self.objects()} <= known
        for segment in cache:
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                assert object_key(segment, MANIFEST) in self.objects()
                assert len(tier.store.get(object_key(segment, LOG))) == segment.size

    def close(self) -> None:
        """End it."""
        self.world.on_exit = lambda _: None
        self.world.close()


def _wait_until_only_remote(tiered: TieredWorld) -> None:
    tiered.world.run_until(
        lambda: tiered.is_started and tiered.log.segments.first.base_offset >= _COUNT // 2, 60
    )


@pytest.mark.parametrize("seed", range(12))
def test_all_that_was_acknowledged_is_read_after_kills_at_any_moment(seed: int) -> None:
    """T27.1-2: while segments are copied, told of, and deleted here."""
    tiered, rng = TieredWorld(seed), Random(seed)
    try:
        tiered.produce()
        for _ in range(5):
            tiered.world.run_for(rng.expovariate(4))
            tiered.kill()
        _wait_until_only_remote(tiered)
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


@pytest.mark.parametrize("step", range(1, 90, 6))
def test_a_copy_that_dies_at_any_disk_operation_is_made_again(step: int) -> None:
    """T15a, T27.1-2: killed at this operation of the disk, which the store is on as well."""
    tiered = TieredWorld(7)
    try:
        tiered.produce()
        tiered.machine.files.cut_after_operations(step)
        life = tiered.machine.life
        tiered.world.run_for(3)
        assert tiered.machine.life > life or step > 60
        tiered.machine.files.cut_never()
        _wait_until_only_remote(tiered)
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


@pytest.mark.parametrize("seed", range(6))
def test_what_expires_is_gone_for_good_however_the_node_dies(seed: int) -> None:
    """T7, T27.3, T27.6: the log start does not fall, and no object is left that nobody knows."""
    tiered, rng = TieredWorld(seed, retention_bytes="2000"), Random(seed)
    try:
        tiered.produce()
        highest = 0
        for _ in range(4):
            tiered.world.run_for(rng.expovariate(3))
            highest = max(highest, tiered.log.log_start_offset)
            tiered.kill()
        tiered.world.run_until(lambda: tiered.log.log_start_offset > _COUNT // 2, 60)
        tiered.world.run_for(5)
        start = tiered.log.log_start_offset
        assert start >= highest
        wanted = {offset: text for offset, text in tiered.acknowledged.items() if offset >= start}
        assert tiered.read() == wanted
        tiered.check_tier()
    finally:
        tiered.close()


def test_segments_that_were_not_on_the_disk_when_the_node_died_become_remote_all_the_same() -> None:
    """T3: though nothing is appended after the recovery."""
    tiered = TieredWorld(5)
    try:
        tiered.machine.disk.work_mean_ns *= 100
        tiered.produce()
        tiered.kill()
        tiered.machine.disk.work_mean_ns //= 100
        _wait_until_only_remote(tiered)
        assert tiered.read() == tiered.acknowledged
    finally:
        tiered.close()


def test_a_segment_without_a_producer_snapshot_and_all_behind_it_stay_on_the_disk() -> None:
    """T3.6, T27.2: it cannot be copied, and is not taken for remote because later ones are."""
    tiered = TieredWorld(6)
    try:
        tiered.machine.disk.work_mean_ns *= 100
        tiered.produce()
        snapshots = tiered.log.producer_state.snapshots
        bases = tiered.log.segments.base_offsets
        tiered.machine.disk.work_mean_ns //= 100
        lost = next(base for base in bases[1:] if base > tiered.log.highest_remote_offset + 1)
        snapshots.remove(lost)
        tiered.world.run_for(10)
        assert tiered.log.highest_remote_offset < lost
        assert tiered.log.segments.first.base_offset < lost
        assert tiered.read() == tiered.acknowledged
    finally:
        tiered.close()


def test_leader_epochs_that_are_lost_with_their_file_come_back_from_the_store() -> None:
    """T15a: without them nothing of the remote part could be found, nor told from leftovers."""
    tiered = TieredWorld(3)
    try:
        tiered.produce()
        tiered.kill()
        tiered.produce(10)
        _wait_until_only_remote(tiered)
        known = tiered.log.leader_epochs.entries
        tiered.machine.kill()
        tiered.machine.files.put("/data/t-0/leader-epoch-checkpoint", b"damaged")
        tiered.start()
        tiered.world.run_until(lambda: tiered.log.leader_epochs.entries[:1] == known[:1], 30)
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()


_STORE_OPERATIONS = (
    Operation.WRITE,
    Operation.SYNC,
    # The object is there, but who has put it is told that it failed: a lost answer.
    Operation.SYNC_DIR,
    Operation.RENAME,
    Operation.REMOVE,
    Operation.READ,
    Operation.OPEN,
)


@pytest.mark.parametrize("seed", range(8))
def test_a_store_that_fails_now_and_then_loses_nothing_and_keeps_no_strays(seed: int) -> None:
    """T3.7, T15a, T27.6, T27.8: errors, torn writes, answers that are lost, and a slow store."""
    tiered, rng = TieredWorld(seed), Random(seed)
    try:
        tiered.machine.disk.work_mean_ns *= 20
        for _ in range(4):
            fault = tiered.machine.files.fail(
                rng.sample(_STORE_OPERATIONS, 3),
                "/store",
                errno.EIO,
                partial_bytes=rng.randrange(100),
                skip=rng.randrange(6),
                times=rng.randrange(1, 12),
            )
            tiered.produce(_COUNT // 4)
            tiered.world.run_for(rng.expovariate(1))
            tiered.machine.files.heal(fault)
        _wait_until_only_remote(tiered)
        assert tiered.machine.life == 1
        assert tiered.read() == tiered.acknowledged
        tiered.check_tier()
    finally:
        tiered.close()
