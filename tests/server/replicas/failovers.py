"""A cluster whose nodes are killed, paused and cut off while clients produce and consume.

Whatever strikes, nothing that was acknowledged may be lost: disks keep what was written, or lose
their power one at a time, while the others have everything, or records are synced before they are
acknowledged. ``strikes`` has the kinds of faults, of which each seed draws some (swarm testing).
Besides, an administrator makes topics, deletes them and makes them again, adds partitions, has
leaders elected, and moves logs between directories. What is checked, and when:

- All the time (``group_watch``): H1 of coordinators (one for a partition and leader epoch).
- At every event (``watching``): P1 and P2 (whoever leads or may be elected has all that was
  committed), P3, P4, P5, P7, P8, P9, P10, P12 (of followers' high watermarks), P15, P17.
- When something strikes, and at the end: P13, P14, T3, T4, T6 (``log_scan``, on leaders), G1-G4
  and G8 (``group_watch``).
- At the end: P6 (bytes), P10, P13, P14 on every replica, P16 (by when records were acknowledged),
  T2, T7; the clients' history (``dohle.testing.checking``): J1-J7, J9-J13, J15, J16,
  P11, P12 (nothing uncommitted
  or aborted was read), G1, G5, G6, G7, T1, T5.
- After the last fault, each within its time: L1 (a controller), L2 (brokers are not fenced), L3
  (all replicas are in sync), L4 (clients' requests have ended), L5 (no transaction is open), L6
  (groups are stable or empty), L7 (all is read: J5 and J6), L8 (images agree, nothing is pending).
- G9 is not reached here: offsets expire after days; see ``tests/groups/offsets``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple, Self

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
from tests.server.replicas.simulated_cluster import SimulatedCluster, committed_bytes
from tests.server.replicas.strikes import ALL_KINDS, BLACKOUT, KINDS, POWER, Strikes
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
#: And what one of those may do whose faults are drawn.
DRAWN = (*TRANSACTIONS, "weave", "administer")
_DIRECTORIES = ("/data", "/data,/more")


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
        syncs: bool = False,
        log_dirs: str = _DIRECTORIES[0],
        network: NetworkSettings | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """``is_quick``: who is dead is missed, and started again, within a third of the time.

        ``syncs``: records are synced before they are acknowledged.
        """
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
            "log.dirs": log_dirs,
        }
        if syncs:
            properties["log.flush.interval.messages"] = "1"
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
        self._active_s = active_s
        self._rng = rng
        self.workload = Workload(
            self.cluster.bootstrap,
            self.history,
            lambda: self.world.time.now_ns,
            lambda: self.is_over,
            partitions=2,
            rack=rack,
            log_dirs=log_dirs.split(","),
        )
        self._clients = {self.world.machine(f"client-{n}"): role for n, role in enumerate(roles)}
        self.history.knows_batches = True
        if "copy" in roles:
            self.history.copies.append((INPUT, OUTPUT, COPIERS))
        self.watch = PartitionWatch(self.cluster)
        self.strikes = Strikes(
            self.cluster, self.watch, rng, kinds, slowness=1 if is_quick else 3, syncs=syncs
        )
        self.strikes.clients = {each: partial(self._start_client, each) for each in self._clients}
        self.world.on_exit = self.strikes.exited
        self.groups = GroupWatch(self.cluster)
        self.world.on_step = self._after
        self._scan_problems: list[str] = []

    def _after(self, machine: Machine) -> None:
        self.watch.after(machine)
        self.groups.after(machine)

    @classmethod
    def drawn(cls, seed: int, *, trace: Callable[[str], None] | None = None) -> Self:
        """Return a short run whose clients and faults are drawn as well (swarm testing)."""
        rng = Random(f"failovers/{seed}")
        draw = rng.random()
        if draw < 1 / 8:
            kinds: list[str] = []
        elif draw < 4 / 8:
            kinds = [rng.choice(ALL_KINDS)]
        else:
            kinds = [kind for kind in ALL_KINDS if rng.random() < 0.3]
        syncs = BLACKOUT in kinds or (POWER in kinds and len(kinds) > 1)
        roles = rng.sample(DRAWN, rng.randint(1, 3))
        network = NetworkSettings()
        if rng.random() < 0.25:
            network.delay_mean_ns = rng.randrange(1, 30) * _MS_NS
        return cls(
            seed,
            active_s=8.0,
            kinds=kinds,
            roles=("produce", *roles),
            is_quick=True,
            syncs=syncs,
            log_dirs=rng.choice(_DIRECTORIES),
            network=network,
            trace=trace,
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing strikes any more."""
        return self.strikes.is_over

    def roles(self) -> dict[str, Program]:
        """Return the programs that clients may have."""
        return self.workload.roles()

    def _start_client(self, machine: Machine) -> None:
        if not self.is_over:
            machine.start(self.roles()[self._clients[machine]])

    def _strike(self) -> None:
        if not self.is_over:
            self._look()
            self.strikes.strike()

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
        return Outcome(
            self.world.seed, problems, acknowledged, self.strikes.struck, self.world.digest
        )

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
        self.strikes.heal()
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
            if node_id in self.strikes.broken:
                # To look would be to read, and to meet the fault.
                continue
            for partition in node.broker.partitions:
                if partition.is_led and partition.log.disk.is_online():
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
