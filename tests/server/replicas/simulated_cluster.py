"""Three real nodes, each broker and controller, in one simulated world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dohle.core.config.static import BrokerConfig
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.bootstrap import default_bootstrap_records
from dohle.metadata.partition import PartitionImage
from dohle.records.batch import batches
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition
from dohle.server.quorum.snapshots import BOOTSTRAP_CHECKPOINT, write_snapshot
from dohle.storage import log_read
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.directory.meta_properties import InvalidMetaProperties
from dohle.storage.files import join, parent
from dohle.storage.log_values import Isolation
from dohle.storage.open_files import OpenFiles
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.world import World

CLUSTER_ID = "the-cluster-of-a-test0"
CLIENTS_PORT, CONTROLLERS_PORT = 9092, 9093
_DIRECTORY = "/data"


class SimulatedCluster:
    """Nodes 1 to ``count``; ``start`` each, and ``kill`` some.

    In ``properties`` "{id}" stands for the id of each node. ``metadata_version`` is what it begins
    with, if that is not the latest.
    """

    def __init__(
        self,
        world: World,
        count: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        metadata_version: int | None = None,
    ) -> None:
        self.world = world
        self._metadata_version = metadata_version
        self.machines = {BrokerId(id): world.machine(f"n{id}") for id in range(1, count + 1)}
        self.nodes: dict[BrokerId, Node] = {}
        #: With those that are about to stop: until then they lead and copy.
        self.working: dict[BrokerId, Node] = {}
        self.fatal: list[str] = []
        #: Whether a node may refuse to start, or end itself, because of its disk.
        self.may_fail: Callable[[], bool] = lambda: False
        self._properties = dict(properties or {})
        for node_id, machine in self.machines.items():
            self._format(node_id, machine)
        world.on_exit = lambda machine: None

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{machine.name}:{CLIENTS_PORT}" for machine in self.machines.values())

    def _format(self, node_id: BrokerId, machine: Machine) -> None:
        config = self.config(node_id)
        for directory in config.log_dirs:
            machine.files.make_dirs(directory)
            machine.files.sync_dir(parent(directory))
        rng = self.world.stream(f"format {node_id}")
        logs = LogManager(
            machine.files, clock=machine.clock, rng=rng, open_files=OpenFiles.within(64)
        )
        logs.attach(config.log_dirs, Identity(CLUSTER_ID, node_id), config.metadata_log_dir)
        logs.release()
        if self._metadata_version is not None:
            path = join(config.metadata_log_dir, BOOTSTRAP_CHECKPOINT)
            records = default_bootstrap_records(self._metadata_version)
            write_snapshot(machine.files, path, records, epoch=0, timestamp=0)

    def config(self, node_id: BrokerId) -> BrokerConfig:
        voters = ",".join(
            f"{id}@{machine.name}:{CONTROLLERS_PORT}" for id, machine in self.machines.items()
        )
        name = self.machines[node_id].name
        properties = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{name}:{CLIENTS_PORT},CONTROLLER://{name}:{CONTROLLERS_PORT}",
            "log.dirs": _DIRECTORY,
            "min.insync.replicas": "2",
            **{name: text.format(id=node_id) for name, text in self._properties.items()},
        }
        return BrokerConfig.from_properties(properties)[0]

    # Life and death

    def start(self, node_id: BrokerId) -> None:
        self.machines[node_id].start(lambda host: self._serve(node_id, host))

    def start_all(self) -> None:
        for node_id in self.machines:
            self.start(node_id)

    def kill(self, node_id: BrokerId) -> None:
        self.machines[node_id].kill()
        self.gone(node_id)

    def gone(self, node_id: BrokerId) -> None:
        """Take note that a node's process has ended."""
        self.nodes.pop(node_id, None)
        self.working.pop(node_id, None)

    async def _serve(self, node_id: BrokerId, host: SimulatedHost) -> None:
        def fatal(reason: str) -> None:
            self._failed(node_id, reason)
            host.stopping.set()

        node = Node(self.config(node_id), host=host, on_fatal=fatal)
        try:
            await node.start()
            self.nodes[node_id] = self.working[node_id] = node
            await host.stopping.wait()
            self.nodes.pop(node_id, None)
            await node.stop()
            self.working.pop(node_id, None)
        except (OSError, KafkaError, InvalidMetaProperties, RuntimeError) as error:
            if not self.may_fail():
                raise
            self._failed(node_id, str(error))

    def _failed(self, node_id: BrokerId, reason: str) -> None:
        if self.may_fail():
            self.world.note("fatal", self.machines[node_id].name, reason)
        else:
            self.fatal.append(f"node {node_id}: {reason}")

    # What there is to see

    @property
    def min_isr(self) -> int:
        """How many replicas must be in sync, unless a topic says otherwise."""
        return next(iter(map(self.config, self.machines))).get_int("min.insync.replicas")

    @property
    def is_up(self) -> bool:
        """Whether all nodes serve."""
        return len(self.nodes) == len(self.machines)

    def image(self, topic: str, index: int) -> PartitionImage | None:
        """Return a partition as the node sees it that has seen most."""
        newest = max(
            (node.images.image for node in self.nodes.values()),
            key=lambda image: image.offset,
            default=None,
        )
        return None if newest is None else newest.partition(TopicName(topic), index)

    def leader(self, topic: str, index: int) -> BrokerId | None:
        """Return who leads a partition, if its broker says so itself."""
        image = self.image(topic, index)
        node = None if image is None else self.nodes.get(image.leader)
        found = None if node is None else node.broker.partitions.get(topic, index)
        return image.leader if image is not None and found is not None and found.is_led else None

    def replicas(self, topic: str) -> Iterator[tuple[BrokerId, Partition]]:
        for node_id, node in sorted(self.nodes.items()):
            for partition in node.broker.partitions.of_topic(TopicName(topic)).values():
                yield node_id, partition

    def is_in_sync(self, topic: str) -> bool:
        """Whether all replicas are in the ISR and have all there is, and none is to move."""
        if not self.is_up:
            return False
        found: dict[int, dict[BrokerId, Partition]] = {}
        for node_id, partition in self.replicas(topic):
            found.setdefault(partition.key.partition, {})[node_id] = partition
        for index, replicas in found.items():
            image = self.image(topic, index)
            if image is None or image.adding_replicas or image.removing_replicas:
                return False
            if not set(image.isr) == set(image.replicas) == set(replicas):
                return False
            if any(partition.image != image for partition in replicas.values()):
                return False
            logs = [partition.log for partition in replicas.values()]
            if len({end for log in logs for end in (log.log_end_offset, log.high_watermark)}) != 1:
                return False
        return bool(found)


def committed_bytes(partition: Partition) -> bytes:
    """Return what a replica has below its high watermark, from the disk."""
    log, found = partition.log, b""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        piece = log_read.read(
            log, offset, 1 << 20, Isolation.HIGH_WATERMARK, min_one_batch=True
        ).slice
        assert piece is not None
        data = piece.read()
        found += data
        *_, last = batches(data)
        offset = last.next_offset
    return found
