"""Several nodes in the simulator: three controllers and two brokers, on a machine each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from dohle.cli.commands.storage_format import Formatter, NewCluster
from dohle.client.admin.admin import Admin
from dohle.client.cluster import Cluster
from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import random_uuid
from dohle.metadata.bootstrap import default_bootstrap_records
from dohle.metadata.image import ClusterImage
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.server.node import Node
from dohle.testing.simulation.files import SimulatedFileSystem
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.world import World

T = TypeVar("T")

CONTROLLERS, BROKERS = (1, 2, 3), (4, 5)
CLUSTER_ID = "the-cluster"
ALL = (*CONTROLLERS, *BROKERS)
STATIC = {"controller.quorum.voters": ",".join(f"{id}@n{id}:9093" for id in CONTROLLERS)}
DYNAMIC = {"controller.quorum.bootstrap.servers": ",".join(f"n{id}:9093" for id in CONTROLLERS)}


def config_of(node_id: int, more: dict[str, str]) -> BrokerConfig:
    is_controller = node_id not in BROKERS
    listener = f"CONTROLLER://n{node_id}:9093" if is_controller else f"PLAINTEXT://n{node_id}:9092"
    properties = {
        "process.roles": "controller" if is_controller else "broker",
        "node.id": str(node_id),
        "controller.listener.names": "CONTROLLER",
        "listeners": listener,
        "log.dirs": "/data",
        "offsets.topic.num.partitions": "2",
        **more,
    }
    return BrokerConfig.from_properties(properties)[0]


class SimulatedCluster:
    """A world with a cluster in it."""

    def __init__(self, seed: int, quorum: dict[str, str]) -> None:
        self.world = World(seed)
        self._quorum = quorum
        self._more: dict[int, dict[str, str]] = {}
        self.nodes: dict[int, Node] = {}
        self.started: set[int] = set()
        self.fatal: list[str] = []
        rng = self.world.stream("directories")
        voters = tuple(
            Voter(BrokerId(id), random_uuid(rng), (VoterEndpoint("CONTROLLER", f"n{id}", 9093),))
            for id in CONTROLLERS
        )
        begin = NewCluster(default_bootstrap_records(), voters if quorum is DYNAMIC else ())
        for node_id in ALL:
            self.world.machine(f"n{node_id}")
            self._format(node_id, begin)
            self.start(node_id)

    def _format(self, node_id: int, begin: NewCluster, cluster_id: str = CLUSTER_ID) -> None:
        machine = self.machine(node_id)
        formatter = Formatter(machine.files, cluster_id, BrokerId(node_id), begin)
        formatter._rng = self.world.stream(f"format {node_id} after {machine.life}")
        formatter.format("/data", has_metadata=True)

    def replace(self, node_id: int, cluster_id: str = CLUSTER_ID) -> None:
        """Put a new machine in the place of one that does not run: formatted, and empty but for it.

        As ``dohle storage format`` does on a machine that joins a cluster: it names no voters.
        """
        machine = self.machine(node_id)
        assert not machine.is_running
        former, machine.files = machine.files, SimulatedFileSystem(machine.clock)
        machine.files.observer = former.observer
        self._format(node_id, NewCluster(default_bootstrap_records()), cluster_id)

    def add_controller(self, node_id: int, **more: str) -> None:
        """Start a controller that is none of the voters, with such configs."""
        self.world.machine(f"n{node_id}")
        self._format(node_id, NewCluster(default_bootstrap_records()))
        self.configure(node_id, **more)
        self.start(node_id)

    def configure(self, node_id: int, **more: str) -> None:
        """Give a node configs for its next start; underscores stand for dots."""
        self._more[node_id] = {name.replace("_", "."): value for name, value in more.items()}

    def voters(self, node_id: int) -> dict[int, Uuid]:
        """Return the directory of each voter, as a node's metadata log tells them."""
        membership = self.nodes[node_id].member.log.memberships.latest
        return {voter.id: voter.directory_id for voter in membership.voters}

    def machine(self, node_id: int) -> Machine:
        return self.world.machines[f"n{node_id}"]

    def start(self, node_id: int) -> None:
        """Start a node, as new or after its end."""

        async def program(host: SimulatedHost) -> None:
            config = config_of(node_id, {**self._quorum, **self._more.get(node_id, {})})
            node = self.nodes[node_id] = Node(config, host=host, on_fatal=self.fatal.append)
            await node.start()
            self.started.add(node_id)
            await host.stopping.wait()
            await node.stop()

        self.started.discard(node_id)
        self.machine(node_id).start(program)

    def kill(self, node_id: int) -> None:
        """Kill a node."""
        self.started.discard(node_id)
        self.machine(node_id).kill()

    def stop(self, node_id: int, within_s: float = 30) -> float:
        """Stop a node cleanly, and return how many seconds that took."""
        self.started.discard(node_id)
        machine, begun = self.machine(node_id), self.world.now_s
        machine.host.stopping.set()
        self.world.run_until(machine.main.done, within_s)
        machine.main.result()
        return self.world.now_s - begun

    def await_started(self, within_s: float = 60) -> None:
        """Go on until all nodes run."""
        self.world.run_until(lambda: self.started.issuperset(ALL), within_s)

    def image(self, node_id: int) -> ClusterImage:
        """The cluster as a node knows it."""
        return self.nodes[node_id].images.image

    @property
    def active(self) -> int | None:
        """The node whose controller is active."""
        running = (id for id in sorted(self.started) if id not in BROKERS)
        return next((id for id in running if self.nodes[id].controller.is_active), None)

    def await_active(self, within_s: float = 30) -> int:
        """Go on until a controller is active."""
        self.world.run_until(lambda: self.active is not None, within_s)
        assert self.active is not None
        return self.active

    def ask(self, program: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
        """Run an admin client on a machine of its own."""
        return self.use(lambda client: program(Admin(client)))

    def use(self, program: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Run a client on a machine of its own, and return what it returns."""
        machine = self.world.machine(f"client-{len(self.world.machines)}")

        async def main(host: SimulatedHost) -> T:
            async with Cluster("n4:9092,n5:9092", host=host) as client:
                return await program(client)

        machine.start(main)
        self.world.run_until(machine.main.done, 120)
        found: T = machine.main.result()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *outcome: object) -> None:
        self.world.close()
        if outcome[0] is None:
            assert self.world.errors == []
            assert self.fatal == []
