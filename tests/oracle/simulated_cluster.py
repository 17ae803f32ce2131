"""Three nodes of dohle in the simulator, as ``layout`` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from dohle.cli.commands.storage_format import Formatter, NewCluster
from dohle.core.config.static import BrokerConfig
from dohle.core.ids import BrokerId
from dohle.core.seams import SystemClock
from dohle.core.uuid import random_uuid
from dohle.metadata.bootstrap import default_bootstrap_records
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.server.node import Node
from dohle.testing.simulation.machine import WALL_MS, Machine, SimulatedHost
from dohle.testing.simulation.world import World
from tests.oracle.layout import CLUSTER_ID, LISTENER, NODES, Listeners, cluster_steps_of
from tests.oracle.scenario import Scenario, Step

_CONTROLLER_PORT = 9093
#: Of virtual time.
_WITHIN_S = 600

_BROKERS = {node: f"n{node}:9092" for node in NODES}
_CONTROLLERS = {node: f"n{node}:{_CONTROLLER_PORT}" for node in NODES}


class SimulatedThree:
    """A world with the three nodes in it, for any number of scenarios."""

    def __init__(self, *, has_static_voters: bool = False) -> None:
        self._listeners = Listeners(_BROKERS, _CONTROLLERS, has_static_voters)
        self._world = World(1)
        self._started = 0
        rng = self._world.stream("directories")
        voters = tuple(
            Voter(
                BrokerId(node),
                random_uuid(rng),
                (VoterEndpoint(LISTENER, f"n{node}", _CONTROLLER_PORT),),
            )
            for node in NODES
        )
        for node in NODES:
            machine = self._machine(f"n{node}")
            begin = NewCluster(default_bootstrap_records(), () if has_static_voters else voters)
            formatter = Formatter(machine.files, CLUSTER_ID, BrokerId(node), begin)
            formatter._rng = self._world.stream(f"format {node}")
            formatter.format("/data", has_metadata=True)
            self._start(machine, self._listeners.properties(node))
        self._world.run_until(lambda: self._started == len(NODES), _WITHIN_S)

    def _machine(self, name: str) -> Machine:
        machine = self._world.machine(name)
        # Transcripts say of a time whether it is now.
        machine.clock.offset_ms = SystemClock().now_ms() - WALL_MS
        return machine

    def _start(self, machine: Machine, properties: Mapping[str, str]) -> None:
        config, _ = BrokerConfig.from_properties({**properties, "log.dirs": "/data"})

        async def program(host: SimulatedHost) -> None:
            node = Node(config, host=host)
            await node.start()
            self._started += 1
            await host.stopping.wait()

        machine.start(program)

    def steps_of(self, name: str, scenario: Scenario) -> list[Step]:
        """Run a scenario on a machine of its own, and return its transcript."""
        found = list[Step]()

        async def ask(host: SimulatedHost) -> None:
            found.extend(await cluster_steps_of(self._listeners, name, scenario, "replay"))

        machine = self._machine(f"client {name}")
        machine.start(ask)
        self._world.run_until(lambda: not machine.is_running, _WITHIN_S)
        errors, self._world.errors[:] = [*self._world.errors], []
        assert not errors, "\n".join(errors)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *outcome: object) -> None:
        self._world.close()
