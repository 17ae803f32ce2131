"""A node with a remote tier in the simulator, and what clients do with it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from dohle.client import Admin, Beginning, Cluster, Consumer, ConsumerConfig, Producer
from dohle.client.admin.config_values import AlterOp, ConfigChange, ConfigResource, ResourceType
from dohle.client.admin.topic_values import NewTopic
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.ids import TopicName, TopicPartition
from dohle.server.node import Node
from dohle.storage.log import Log
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.world import World
from dohle.tiering.layout import INDEXES, LOG, MANIFEST, object_key
from dohle.tiering.segments import SegmentState

_TOPIC = "t"
KEY = TopicPartition(TopicName(_TOPIC), 0)
COUNT = 120
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

    def produce(self, count: int = COUNT) -> None:
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
                await consumer.assign({KEY: Beginning()}, stop_at_end=True)
                async for each in consumer:
                    found[each.record.offset] = each.record.value or b""

        self.run(program)
        return found

    @property
    def log(self) -> Log:
        """The log of the topic."""
        partition = self.node.broker.partitions.get(*KEY)
        assert partition is not None
        return partition.log

    def objects(self) -> set[str]:
        """The keys in the store."""
        prefix = "/store/"
        paths = [path for path in self.machine.files.files() if path.startswith(prefix)]
        return {path.removeprefix(prefix) for path in paths}

    def check_tier(self) -> None:
        """What the metadata has as copied is whole, and it knows of all that is in the store."""
        partition = self.node.broker.partitions.get(*KEY)
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

    def wait_until_only_remote(self) -> None:
        """Let time pass until most of it is on no disk of the node."""
        self.world.run_until(
            lambda: self.is_started and self.log.segments.first.base_offset >= COUNT // 2, 60
        )

    def alter(self, **changed: str) -> None:
        """Change settings of the topic."""
        changes = [
            ConfigChange(name.replace("_", "."), AlterOp.SET, text)
            for name, text in changed.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, _TOPIC)

        async def program(cluster: Cluster) -> None:
            (await Admin(cluster).incremental_alter_configs({resource: changes})).ok()

        self.run(program)
