"""What strikes the nodes of a cluster, their disks, clocks and links, and the clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from dohle.core.ids import BrokerId
from dohle.testing.simulation.machine import DiskSettings, Machine
from dohle.testing.simulation.machine_faults import (
    cut_short,
    die_in_a_change,
    fail_disk,
    fill_disk,
    mend_disk,
    set_clock_wrong,
    slow_disk,
)
from dohle.testing.simulation.workload import INPUT, TOPICS
from tests.server.replicas.simulated_cluster import CLIENTS_PORT, SimulatedCluster
from tests.server.replicas.watching import PartitionWatch

_MS_NS = 1_000_000
KINDS = ("kill", "kill", "stop", "pause", "cut", "reset")
CLIENT_KINDS = ("client kill", "client pause", "client cut", "client late")
#: What a node has sent arrives late, also after its end.
LATE = "late"
KILL_IN_WRITE, DISK_ERROR, DISK_FULL = "kill in a write", "disk error", "disk full"
CLOCK = "clock"
#: One node's disk is slow all the time, or sockets take a part only.
SLOW_DISK, SHORT = "slow disk", "short"
STANDING = (SLOW_DISK, SHORT)
#: One node's power, or that of all. If records are not synced before they are acknowledged, one
#: node's only, and only while all replicas are in sync: what was not synced is then on another.
POWER, BLACKOUT = "power", "blackout"
ALL_KINDS = (
    *dict.fromkeys(KINDS),
    LATE,
    *CLIENT_KINDS,
    KILL_IN_WRITE,
    DISK_ERROR,
    DISK_FULL,
    CLOCK,
    SLOW_DISK,
    SHORT,
    POWER,
    BLACKOUT,
)


class Strikes:
    """Lets faults of some kinds strike; whoever is dead is started again some time later."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        watch: PartitionWatch,
        rng: Random,
        kinds: Sequence[str],
        *,
        slowness: int,
        syncs: bool,
    ) -> None:
        """``syncs``: nothing is acknowledged that is not synced."""
        self._world = cluster.world
        self._cluster = cluster
        self._watch = watch
        self._rng = rng
        self._kinds = [kind for kind in kinds if kind not in STANDING]
        self._slowness = slowness
        self._syncs = syncs
        self.clients: dict[Machine, Callable[[], None]] = {}
        self.is_over = False
        self.struck = 0
        #: Those whose disks are not as they should be.
        self.broken: set[BrokerId] = set()
        if SLOW_DISK in kinds:
            rng.choice(list(cluster.machines.values())).disk = slow_disk(rng)
        if SHORT in kinds:
            cut_short(rng, self._world.network.settings)
        if {DISK_ERROR, DISK_FULL} & set(kinds):
            cluster.may_fail = lambda: not self.is_over

    # Life after death

    def exited(self, machine: Machine) -> None:
        """Take note that a process has ended by itself."""
        for node_id, each in self._cluster.machines.items():
            if each is machine:
                self._cluster.gone(node_id)
                self._start_later(node_id)

    def _start_later(self, node_id: BrokerId) -> None:
        self._later(self._cluster.machines[node_id], lambda: self._cluster.start(node_id))

    def _later(self, machine: Machine, start: Callable[[], None]) -> None:
        life = machine.life

        def start_anew() -> None:
            if not machine.is_running and machine.life == life:
                start()

        self._world.after(self._rng.randrange(100, 5_000) * self._slowness * _MS_NS, start_anew)

    def heal(self) -> None:
        """Let nothing strike any more, and mend everything; who is dead is about to be started."""
        self.is_over = True
        for node_id in sorted(self.broken):
            self._mend(node_id)
        network = self._world.network
        network.mend()
        network.settings.short_share = 0.0
        for machine in self._world.machines.values():
            machine.paused_until_ns = 0
            machine.files.cut_never()
            machine.disk = DiskSettings()

    # Faults

    def strike(self) -> None:
        """Let something strike."""
        if self.is_over or not self._kinds:
            return
        self.struck += 1
        rng, world = self._rng, self._world
        node_id = rng.choice(sorted(self._cluster.machines))
        if rng.random() < 0.5:
            # Whoever leads is the most interesting.
            node_id = self._cluster.leader(INPUT, 0) or node_id
        machine = self._cluster.machines[node_id]
        kind = rng.choice(self._kinds)
        world.note("fault", machine.name, kind)
        if kind in CLIENT_KINDS:
            self._strike_client(kind, machine)
        elif kind == BLACKOUT:
            for each in self._cluster.machines:
                self._power_off(each)
        elif machine.is_running:
            self._strike_node(kind, node_id, machine)

    def _strike_node(self, kind: str, node_id: BrokerId, machine: Machine) -> None:
        rng, world = self._rng, self._world
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
                if self._syncs or all(map(self._cluster.is_in_sync, TOPICS)):
                    self._power_off(node_id)
            case "clock":
                set_clock_wrong(rng, machine)
            case "kill in a write":
                die_in_a_change(rng, machine.files)
            case _:
                self._break_disk(kind, node_id)

    def _kill(self, node_id: BrokerId, life: int) -> None:
        machine = self._cluster.machines[node_id]
        if machine.is_running and machine.life == life and not self.is_over:
            self._cluster.kill(node_id)
            self._start_later(node_id)

    def _power_off(self, node_id: BrokerId) -> None:
        self._cluster.machines[node_id].power_off(self._rng)
        self._cluster.gone(node_id)
        self._watch.power_lost(node_id)
        self._start_later(node_id)

    def _break_disk(self, kind: str, node_id: BrokerId) -> None:
        files = self._cluster.machines[node_id].files
        (fill_disk if kind == DISK_FULL else fail_disk)(self._rng, files)
        self.broken.add(node_id)
        # A disk that was full may need no more than room; what has failed is used after a start.
        needs_start = kind == DISK_ERROR or self._rng.random() < 0.5
        delay_ns = self._rng.randrange(100, 3_000) * self._slowness * _MS_NS
        self._world.after(delay_ns, lambda: self._mend(node_id, needs_start=needs_start))

    def _mend(self, node_id: BrokerId, *, needs_start: bool = True) -> None:
        if node_id not in self.broken:
            return
        self.broken.discard(node_id)
        machine = self._cluster.machines[node_id]
        mend_disk(machine.files)
        if machine.is_running and (needs_start or self._has_failed(node_id)):
            self._cluster.kill(node_id)
            self._start_later(node_id)

    def _has_failed(self, node_id: BrokerId) -> bool:
        node = self._cluster.working.get(node_id)
        return node is None or not all(each.log.disk.is_online() for each in node.broker.partitions)

    def _moment_ns(self) -> int:
        return self._rng.randrange(10, 6_700) * self._slowness * _MS_NS

    def _cut(self, machine: Machine) -> None:
        until_ns = self._world.time.now_ns + self._moment_ns()
        others = [each for each in self._cluster.machines.values() if each is not machine]
        for other in others[: self._rng.randint(1, len(others))]:
            self._cut_link(machine, other, until_ns)

    def _cut_link(self, one: Machine, other: Machine, until_ns: int) -> None:
        ways = [(one.name, other.name), (other.name, one.name)]
        for way in self._rng.choice((ways, ways[:1], ways[1:])):
            self._world.network.cut(*way, until_ns)

    def _hold(self, machine: Machine, duration_ns: int) -> None:
        """Let half of what it asks others for come late; what it answers comes in time."""
        for sock in list(machine.sockets.values()):
            if sock.getpeername()[1] == CLIENTS_PORT and self._rng.random() < 0.5:
                self._world.network.hold(sock, self._world.time.now_ns + duration_ns)

    def _strike_client(self, kind: str, node: Machine) -> None:
        client = self._rng.choice(list(self.clients))
        match kind:
            case "client kill" if client.is_running:
                client.kill()
                self._later(client, self.clients[client])
            case "client pause":
                # Longer than a session of its group, or not.
                client.pause(self._rng.randrange(10, 12_000) * _MS_NS)
            case "client late":
                # Longer than clients wait for an answer: they ask again elsewhere.
                self._hold(client, self._rng.randrange(3_050, 5_000) * _MS_NS)
            case "client cut":
                self._cut_link(client, node, self._world.time.now_ns + self._moment_ns())
