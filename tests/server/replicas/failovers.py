"""A cluster whose nodes are killed, paused and cut off while clients produce and consume.

Whatever strikes, nothing that was acknowledged may be lost: disks keep what was written, or lose
their power one at a time, while the others have everything. What is checked, and when:

- At every event (``watching``): P1 and P2 (whoever leads or may be elected has all that was
  committed), P3, P4, P5, P7, P8, P9, P10, P12 (of followers' high watermarks), P15, P17.
- When something strikes, and at the end: P13, P14, T3, T4, T6 (``log_scan``, on leaders), G1-G4
  and G8 (``group_watch``).
- At the end: P6 (bytes), P10, P13, P14 on every replica, P16 (by when records were acknowledged),
  T2, T7; the clients' history (``dohle.testing.checking``): J1-J10, P11, P12 (nothing uncommitted
  or aborted was read), G1, G5, G6, G7, T1, T5.
- After the last fault, each within its time: L1 (a controller), L2 (brokers are not fenced), L3
  (all replicas are in sync), L4 (clients' requests have ended), L5 (no transaction is open), L6
  (groups are stable or empty), L7 (all is read: J5 and J6), L8 (images agree, nothing is pending).
- G9 is not reached here: offsets expire after days; see ``tests/groups/offsets``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Self

from dohle.core.ids import BrokerId
from dohle.metadata.image import ClusterImage
from dohle.testing.checking.checks import check
from dohle.testing.checking.history import History
from dohle.testing.simulation.machine import Machine
from dohle.testing.simulation.network import NetworkSettings
from dohle.testing.simulation.workload import (
    COPIERS,
    INPUT,
    OUTPUT,
    TOPICS,
    Program,
    Workload,
)
from dohle.testing.simulation.world import SECOND_NS, Stuck, World
from tests.server.replicas.group_watch import GroupWatch
from tests.server.replicas.log_scan import check_commits, check_state, check_transactions, scan
from tests.server.replicas.simulated_cluster import (
    CLIENTS_PORT,
    SimulatedCluster,
    committed_bytes,
)
from tests.server.replicas.watching import PartitionWatch

_MS_NS = 1_000_000
_PEACE_S = 180.0
#: Whoever is dead is started again by then.
_RESTART_S = 15.0
#: A fetch timeout of 2 s and 20 elections of 1 s each.
_CONTROLLER_S = _RESTART_S + 22.0
#: A session of 9 s, and what registration takes.
_UNFENCED_S = 30.0
#: replica.lag.time.max.ms, and what there is to copy.
_IN_SYNC_S = 60.0
#: A transaction's timeout, the interval of the scan for it, and another coordinator.
_DECIDED_S = 60.0
_STABLE_S = 60.0
_AGREED_S = 30.0
_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: What clients do.
RECORDS = ("produce", "produce", "consume")
TRANSACTIONS = ("produce", "transact", "transact", "copy", "copy", "consume", "join")
KINDS = ("kill", "kill", "stop", "pause", "cut", "reset")
CLIENT_KINDS = ("client kill", "client pause", "client cut", "client late")
#: What a node has sent arrives late, also after its end.
LATE = "late"
#: Only while all replicas are in sync: what was not synced is then on another node.
POWER = "power"
_RESTARTS = {"kill", "stop", LATE, POWER}


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
        is_quick: bool = False,
        network: NetworkSettings | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """``is_quick``: who is dead is missed, and started again, within a third of the time."""
        self.world = World(seed, network=network, trace=trace)
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
        if is_quick:
            properties["broker.session.timeout.ms"] = "3000"
            properties["broker.heartbeat.interval.ms"] = "700"
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
        self._slowness = 1 if is_quick else 3
        self.workload = Workload(
            self.cluster.bootstrap,
            self.history,
            lambda: self.world.time.now_ns,
            lambda: self._is_over,
            partitions=2,
            rack=rack,
        )
        self._clients = {self.world.machine(f"client-{n}"): role for n, role in enumerate(roles)}
        self.history.knows_batches = _RESTARTS.isdisjoint(kinds)
        if "copy" in roles:
            self.history.copies.append((INPUT, OUTPUT, COPIERS))
        self.world.on_exit = self._exited
        self.watch = PartitionWatch(self.cluster)
        self.groups = GroupWatch(self.cluster)
        self.world.on_step = self.watch.after
        self._scan_problems: list[str] = []

    @classmethod
    def drawn(cls, seed: int, *, trace: Callable[[str], None] | None = None) -> Self:
        """Return a short run whose clients and faults are drawn as well (swarm testing)."""
        rng = Random(f"failovers/{seed}")
        every = (*dict.fromkeys(KINDS), LATE, *CLIENT_KINDS, POWER)
        draw = rng.random()
        if draw < 1 / 8:
            kinds: list[str] = []
        elif draw < 4 / 8:
            kinds = [rng.choice(every)]
        else:
            kinds = [kind for kind in every if kind != POWER and rng.random() < 0.4]
        roles = rng.sample(TRANSACTIONS, rng.randint(1, 3))
        network = NetworkSettings()
        if rng.random() < 0.25:
            network.delay_mean_ns = rng.randrange(1, 30) * _MS_NS
        return cls(
            seed,
            active_s=8.0,
            kinds=kinds,
            roles=("produce", *roles),
            is_quick=True,
            network=network,
            trace=trace,
        )

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
                self.cluster.gone(node_id)
                self._start_later(node_id)

    def _start_later(self, node_id: BrokerId) -> None:
        self._later(self.cluster.machines[node_id], lambda: self.cluster.start(node_id))

    def _later(self, machine: Machine, start: Callable[[], None]) -> None:
        life = machine.life

        def start_anew() -> None:
            if not machine.is_running and machine.life == life:
                start()

        self.world.after(self._rng.randrange(100, 5_000) * self._slowness * _MS_NS, start_anew)

    def _start_client(self, machine: Machine) -> None:
        if not self._is_over:
            machine.start(self.roles()[self._clients[machine]])

    # Faults

    def _strike(self) -> None:
        if self._is_over or not self._kinds:
            return
        self._look()
        self._struck += 1
        rng, world = self._rng, self.world
        node_id = rng.choice(sorted(self.cluster.machines))
        if rng.random() < 0.5:
            # Whoever leads is the most interesting.
            node_id = self.cluster.leader(INPUT, 0) or node_id
        machine = self.cluster.machines[node_id]
        kind = rng.choice(self._kinds)
        world.note("fault", machine.name, kind)
        if kind in CLIENT_KINDS:
            self._strike_client(kind, machine)
            return
        if not machine.is_running:
            return
        match kind:
            case "kill":
                self._kill(node_id, machine.life)
            case "stop":
                machine.request_stop()
            case "pause":
                machine.pause(self._moment_ns())
            case "cut":
                self._cut(machine)
            case "reset":
                for sock in list(machine.sockets.values()):
                    if rng.random() < 0.5:
                        world.network.reset(sock)
            case "late":
                # Others have taken its place when they hear the last of it.
                self._hold(machine, rng.randrange(4_000, 8_000) * self._slowness * _MS_NS)
                life = machine.life
                world.after(rng.randrange(500) * _MS_NS, lambda: self._kill(node_id, life))
            case "power":
                self._cut_power(node_id)

    def _kill(self, node_id: BrokerId, life: int) -> None:
        machine = self.cluster.machines[node_id]
        if machine.is_running and machine.life == life and not self._is_over:
            self.cluster.kill(node_id)
            self._start_later(node_id)

    def _moment_ns(self) -> int:
        return self._rng.randrange(10, 6_700) * self._slowness * _MS_NS

    def _cut(self, machine: Machine) -> None:
        until_ns = self.world.time.now_ns + self._moment_ns()
        others = [each for each in self.cluster.machines.values() if each is not machine]
        for other in others[: self._rng.randint(1, len(others))]:
            self._cut_link(machine, other, until_ns)

    def _cut_link(self, one: Machine, other: Machine, until_ns: int) -> None:
        ways = [(one.name, other.name), (other.name, one.name)]
        for way in self._rng.choice((ways, ways[:1], ways[1:])):
            self.world.network.cut(*way, until_ns)

    def _hold(self, machine: Machine, duration_ns: int) -> None:
        """Let half of what it asks others for come late; what it answers comes in time."""
        for sock in list(machine.sockets.values()):
            if sock.getpeername()[1] == CLIENTS_PORT and self._rng.random() < 0.5:
                self.world.network.hold(sock, self.world.time.now_ns + duration_ns)

    def _cut_power(self, node_id: BrokerId) -> None:
        if not all(map(self.cluster.is_in_sync, TOPICS)):
            return
        self.cluster.machines[node_id].power_off(self._rng)
        self.cluster.gone(node_id)
        self.watch.power_lost(node_id)
        self._start_later(node_id)

    def _strike_client(self, kind: str, node: Machine) -> None:
        client = self._rng.choice(list(self._clients))
        match kind:
            case "client kill" if client.is_running:
                client.kill()
                self._later(client, lambda: self._start_client(client))
            case "client pause":
                # Longer than a session of its group, or not.
                client.pause(self._rng.randrange(10, 12_000) * _MS_NS)
            case "client late":
                # Longer than clients wait for an answer: they ask again elsewhere.
                self._hold(client, self._rng.randrange(3_050, 5_000) * _MS_NS)
            case "client cut":
                self._cut_link(client, node, self.world.time.now_ns + self._moment_ns())

    def _heal(self) -> None:
        self._is_over = True
        self.world.network.mend()
        for machine in self.world.machines.values():
            machine.paused_until_ns = 0

    # The run

    def go(self) -> Outcome:
        is_collecting = gc.isenabled()
        gc.disable()
        problems: list[str] = []
        try:
            self._phases()
            problems += self._different_replicas()
        except Stuck as error:
            problems.append(f"{error}")
        finally:
            self.world.close()
            if is_collecting:
                gc.enable()
        problems += [f"R20 error nobody caught: {error}" for error in self.world.errors]
        problems += self.cluster.fatal
        problems += self.watch.problems + self._scan_problems + self.groups.problems
        problems += self.watch.check_acknowledged(self.history)
        if self.history.final:
            problems += map(str, check(self.history))
        acknowledged = sum(send.offset is not None for send in self.history.sends)
        return Outcome(self.world.seed, problems, acknowledged, self._struck, self.world.digest)

    def _phases(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start_all()
        self._await("L1", lambda: cluster.is_up, _PEACE_S)
        checker = world.machine("checker")
        checker.start(self.workload.set_up)
        self._await("L4", lambda: not checker.is_running, _PEACE_S)
        for machine, role in self._clients.items():
            machine.start(self.roles()[role])
        for _ in range(self._rng.randint(2, 8)):
            due_s = world.now_s + self._rng.random() * self._active_s
            world.at(round(due_s * SECOND_NS), self._strike)
        world.run_for(self._active_s)
        self._heal()
        self._look()
        self._await_peace()
        checker.start(self.workload.inspect)
        self._await("L7", lambda: not checker.is_running, _PEACE_S)
        self._await("L3", self._is_in_sync, _IN_SYNC_S)

    def _await(self, rule: str, condition: Callable[[], bool], within_s: float) -> None:
        try:
            self.world.run_until(condition, within_s)
        except Stuck as error:
            running = [each.name for each in self.world.machines.values() if each.is_running]
            text = f"{rule} stuck at {self.world.now_s:.3f}: {error}; running: {running}"
            raise Stuck(text) from error

    def _await_peace(self) -> None:
        self._await("L1", self._has_controller, _CONTROLLER_S)
        # One that was told to stop may still be at it, and comes back some seconds later.
        self._await("L2", lambda: self.cluster.is_up, _PEACE_S)
        self._await("L2", self._is_unfenced, _UNFENCED_S)
        self._await("L3", self._is_in_sync, _IN_SYNC_S)
        self._await("L4", lambda: not any(each.is_running for each in self._clients), _PEACE_S)
        self._await("L5", self._is_decided, _DECIDED_S)
        self._await("L6", self.groups.are_settled, _STABLE_S)
        self._await("L8", self._is_agreed, _AGREED_S)
        self._look()

    def _has_controller(self) -> bool:
        return any(node.controller.is_active for node in self.cluster.nodes.values())

    def _images(self) -> list[ClusterImage]:
        return [node.images.image for node in self.cluster.nodes.values()]

    def _is_unfenced(self) -> bool:
        count = len(self.cluster.machines)
        return self.cluster.is_up and all(
            sum(not each.fenced for each in image.brokers.values()) == count
            for image in self._images()
        )

    def _is_in_sync(self) -> bool:
        return all(map(self.cluster.is_in_sync, TOPICS))

    def _is_decided(self) -> bool:
        return all(
            partition.log.last_stable_offset == partition.log.log_end_offset
            for node in self.cluster.nodes.values()
            for partition in node.broker.partitions
            if partition.is_led
        )

    def _is_agreed(self) -> bool:
        images = self._images()
        return all(each == images[0] for each in images[1:]) and not any(
            partition.replication.wanted_isr
            for node in self.cluster.nodes.values()
            for partition in node.broker.partitions
        )

    # What there is to see

    def _look(self) -> None:
        """Compare what leaders keep with what their logs say, and look at groups."""
        self.groups.look()
        for node_id, node in sorted(self.cluster.working.items()):
            for partition in node.broker.partitions:
                if partition.is_led:
                    found = scan(partition.log)
                    self._scan_problems += found.problems
                    self._scan_problems += check_state(partition.log, found, f"node {node_id}")

    def _different_replicas(self) -> list[str]:
        problems, scans = [], []
        found: dict[tuple[str, int], bytes] = {}
        for node_id, node in sorted(self.cluster.nodes.items()):
            for partition in node.broker.partitions:
                data = committed_bytes(partition)
                known = found.setdefault(partition.key, data)
                if not (data.startswith(known) or known.startswith(data)):
                    problems.append(f"P6 {partition.key} differs on broker {node_id}")
        if problems:
            return problems
        for node_id, node in sorted(self.cluster.nodes.items()):
            for partition in node.broker.partitions:
                read = scan(partition.log, with_values=partition.is_led)
                problems += read.problems
                problems += check_state(partition.log, read, f"node {node_id}")
                scans.append(read)
        offsets = [
            partition.log
            for node_id, partition in self.cluster.replicas("__consumer_offsets")
            if partition.is_led
        ]
        problems += check_commits(offsets, self.history, self.watch.committed_at)
        return problems + check_transactions(scans, self.history)
