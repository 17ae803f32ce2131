"""Several nodes in the simulator: three controllers and two brokers, on a machine each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Self

from dohle.cli.commands.storage_format import Beginning, Formatter
from dohle.client.admin.admin import Admin
from dohle.client.cluster import Cluster
from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId
from dohle.core.uuid import random_uuid
from dohle.metadata.bootstrap import default_bootstrap_records
from dohle.metadata.image import ClusterImage
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.server.node import Node
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.world import World

CONTROLLERS, BROKERS = (1, 2, 3), (4, 5)
ALL = (*CONTROLLERS, *BROKERS)
STATIC = {"controller.quorum.voters": ",".join(f"{id}@n{id}:9093" for id in CONTROLLERS)}
DYNAMIC = {"controller.quorum.bootstrap.servers": ",".join(f"n{id}:9093" for id in CONTROLLERS)}


def config_of(node_id: int, quorum: dict[str, str]) -> BrokerConfig:
    is_controller = node_id in CONTROLLERS
    listener = f"CONTROLLER://n{node_id}:9093" if is_controller else f"PLAINTEXT://n{node_id}:9092"
    properties = {
        **quorum,
        "process.roles": "controller" if is_controller else "broker",
        "node.id": str(node_id),
        "controller.listener.names": "CONTROLLER",
        "listeners": listener,
        "log.dirs": "/data",
        "offsets.topic.num.partitions": "2",
    }
    return BrokerConfig.from_properties(properties)[0]


class SimulatedCluster:
    """A world with a cluster in it."""

    def __init__(self, seed: int, quorum: dict[str, str]) -> None:
        self.world = World(seed)
        self._quorum = quorum
        self.nodes: dict[int, Node] = {}
        self.started: set[int] = set()
        self.fatal: list[str] = []
        rng = self.world.stream("directories")
        voters = tuple(
            Voter(BrokerId(id), random_uuid(rng), (VoterEndpoint("CONTROLLER", f"n{id}", 9093),))
            for id in CONTROLLERS
        )
        begin = Beginning(default_bootstrap_records(), voters if quorum is DYNAMIC else ())
        for node_id in ALL:
            machine = self.world.machine(f"n{node_id}")
            formatter = Formatter(machine.files, "the-cluster", BrokerId(node_id), begin)
            formatter._rng = self.world.stream(f"format {node_id}")
            formatter.format("/data", has_metadata=True)
            self.start(node_id)

    def machine(self, node_id: int) -> Machine:
        return self.world.machines[f"n{node_id}"]

    def start(self, node_id: int) -> None:
        """Start a node, as new or after its end."""

        async def program(host: SimulatedHost) -> None:
            config = config_of(node_id, self._quorum)
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
        self.world.run_until(lambda: len(self.started) == len(ALL), within_s)

    def image(self, node_id: int) -> ClusterImage:
        """The cluster as a node knows it."""
        return self.nodes[node_id].images.image

    @property
    def active(self) -> int | None:
        """The node whose controller is active."""
        running = (id for id in CONTROLLERS if self.machine(id).is_running and id in self.started)
        return next((id for id in running if self.nodes[id].controller.is_active), None)

    def await_active(self, within_s: float = 30) -> int:
        """Go on until a controller is active."""
        self.world.run_until(lambda: self.active is not None, within_s)
        assert self.active is not None
        return self.active

    def ask(self, program: Callable[[Admin], Coroutine[Any, Any, None]]) -> None:
        """Run a client on a machine of its own."""
        machine = self.world.machine(f"client-{len(self.world.machines)}")

        async def main(host: SimulatedHost) -> None:
            async with Cluster("n4:9092,n5:9092", host=host) as cluster:
                await program(Admin(cluster))

        machine.start(main)
        self.world.run_until(machine.main.done, 120)
        machine.main.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *outcome: object) -> None:
        self.world.close()
        if outcome[0] is None:
            assert self.world.errors == []
            assert self.fatal == []
