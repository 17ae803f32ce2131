"""A cluster whose nodes are killed, paused and cut off while clients produce and consume.

Whatever strikes, disks keep what was written: so nothing that was acknowledged may be lost.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import NamedTuple

from dohle.core.ids import BrokerId
from dohle.testing.checking.checks import check
from dohle.testing.checking.history import History
from dohle.testing.simulation.machine import Machine
from dohle.testing.simulation.workload import INPUT, TOPICS, Program, Workload
from dohle.testing.simulation.world import SECOND_NS, Stuck, World
from tests.server.replicas.simulated_cluster import SimulatedCluster, committed_bytes

_MS_NS = 1_000_000
_PEACE_S = 180.0
_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: What clients do.
RECORDS = ("produce", "produce", "consume")
TRANSACTIONS = ("produce", "transact", "transact", "copy", "copy", "consume", "join")
KINDS = ("kill", "kill", "stop", "pause", "cut", "reset")


class Outcome(NamedTuple):
    seed: int
    problems: list[str]
    acknowledged: int
    struck: int
    digest: str


class Failovers:
    """One run of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        active_s: float = 40.0,
        kinds: Sequence[str] = KINDS,
        roles: Sequence[str] = RECORDS,
        nodes: int = 3,
    ) -> None:
        self.world = World(seed)
        rng = self.world.stream("plan")
        properties = {
            "default.replication.factor": "3",
            "min.insync.replicas": rng.choice(("1", "2", "2")),
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "3",
            "replica.lag.time.max.ms": rng.choice(("3000", "30000")),
            "num.replica.fetchers": rng.choice(("1", "2")),
            "replica.fetch.max.bytes": rng.choice(("200", "1048576")),
            "log.index.interval.bytes": rng.choice(("64", "4096")),
            "group.initial.rebalance.delay.ms": "0",
        }
        # In half of the runs readers read from a follower, if node 2 is one.
        rack = rng.choice(("", "rack-2"))
        if rack:
            properties["broker.rack"] = "rack-{id}"
            properties["replica.selector.class"] = _SELECTOR
        self.cluster = SimulatedCluster(self.world, nodes, properties)
        self.history = History()
        self._is_over = False
        self._active_s = active_s
        self._kinds = kinds
        self._rng = rng
        self._struck = 0
        self.workload = Workload(
            self.cluster.bootstrap,
            self.history,
            lambda: self.world.time.now_ns,
            lambda: self._is_over,
            partitions=2,
            rack=rack,
        )
        self._clients = {self.world.machine(f"client-{n}"): role for n, role in enumerate(roles)}
        self.world.on_exit = self._exited

    @property
    def is_over(self) -> bool:
        """Whether nothing strikes any more."""
        return self._is_over

    def roles(self) -> dict[str, Program]:
        """Return the programs that clients may have."""
        return self.workload.roles()

    def _exited(self, machine: Machine) -> None:
        for node_id, each in self.cluster.machines.items():
            if each is machine:
                self.cluster.nodes.pop(node_id, None)
                self._start_later(node_id)

    def _start_later(self, node_id: BrokerId) -> None:
        machine = self.cluster.machines[node_id]
        life = machine.life

        def start() -> None:
            if not machine.is_running and machine.life == life:
                self.cluster.start(node_id)

        self.world.after(self._rng.randrange(100, 15_000) * _MS_NS, start)

    def _strike(self) -> None:
        if self._is_over:
            return
        self._struck += 1
        rng, world = self._rng, self.world
        node_id = rng.choice(sorted(self.cluster.machines))
        if rng.random() < 0.5:
            # Whoever leads is the most interesting.
            node_id = self.cluster.leader(INPUT, 0) or node_id
        machine = self.cluster.machines[node_id]
        kind = rng.choice(self._kinds)
        world.note("fault", machine.name, kind)
        if not machine.is_running:
            return
        match kind:
            case "kill":
                self.cluster.kill(node_id)
                self._start_later(node_id)
            case "stop":
                machine.request_stop()
            case "pause":
                machine.pause(rng.randrange(10, 20_000) * _MS_NS)
            case "cut":
                self._cut(machine)
            case "reset":
                for sock in list(machine.sockets.values()):
                    if rng.random() < 0.5:
                        world.network.reset(sock)

    def _cut(self, machine: Machine) -> None:
        until_ns = self.world.time.now_ns + self._rng.randrange(10, 20_000) * _MS_NS
        others = [each for each in self.cluster.machines.values() if each is not machine]
        for other in others[: self._rng.randint(1, len(others))]:
            ways = [(machine.name, other.name), (other.name, machine.name)]
            for way in self._rng.choice((ways, ways[:1], ways[1:])):
                self.world.network.cut(*way, until_ns)

    def _heal(self) -> None:
        self._is_over = True
        self.world.network.mend()
        for machine in self.world.machines.values():
            machine.paused_until_ns = 0

    def go(self) -> Outcome:
        is_collecting = gc.isenabled()
        gc.disable()
        problems: list[str] = []
        try:
            self._phases()
            problems += self._different_replicas()
        except Stuck as error:
            problems.append(f"L0 stuck: {error}")
        finally:
            self.world.close()
            if is_collecting:
                gc.enable()
        problems += [f"R20 error nobody caught: {error}" for error in self.world.errors]
        problems += self.cluster.fatal
        if not problems:
            problems += map(str, check(self.history))
        acknowledged = sum(send.offset is not None for send in self.history.sends)
        return Outcome(self.world.seed, problems, acknowledged, self._struck, self.world.digest)

    def _phases(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start_all()
        world.run_until(lambda: cluster.is_up, _PEACE_S)
        checker = world.machine("checker")
        checker.start(self.workload.set_up)
        world.run_until(lambda: not checker.is_running, _PEACE_S)
        for machine, role in self._clients.items():
            machine.start(self.roles()[role])
        for _ in range(self._rng.randint(2, 8)):
            due_s = world.now_s + self._rng.random() * self._active_s
            world.at(round(due_s * SECOND_NS), self._strike)
        world.run_for(self._active_s)
        self._heal()
        world.run_until(lambda: not any(each.is_running for each in self._clients), _PEACE_S)
        world.run_until(lambda: all(map(cluster.is_in_sync, TOPICS)), _PEACE_S)
        checker.start(self.workload.inspect)
        world.run_until(lambda: not checker.is_running, _PEACE_S)
        world.run_until(lambda: all(map(cluster.is_in_sync, TOPICS)), _PEACE_S)

    def _different_replicas(self) -> list[str]:
        problems = []
        for topic in TOPICS:
            found: dict[int, bytes] = {}
            for node_id, partition in self.cluster.replicas(topic):
                data = committed_bytes(partition)
                if found.setdefault(partition.key.partition, data) != data:
                    problems.append(f"P6 {partition.key} differs on broker {node_id}")
        return problems
