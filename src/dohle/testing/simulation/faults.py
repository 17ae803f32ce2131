"""What goes wrong in a run: which kinds of faults there are is drawn first, then when they strike.

All faults at once would mask each other, and mostly show that nothing works. So each seed has a
subset of the kinds (swarm testing): one in eight has none at all, three in eight exactly one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

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
from dohle.testing.simulation.network import NetworkSettings
from dohle.testing.simulation.world import SECOND_NS, World

_MS_NS = 1_000_000


class Kind(Enum):
    """A kind of fault."""

    KILL = "the node is killed"
    KILL_IN_WRITE = "the node is killed within a change of its disk"
    STOP = "the node is stopped cleanly"
    POWER = "the node's machine loses its power"
    PAUSE = "the node stands still"
    DISK_ERROR = "some of the node's writes, syncs or reads fail"
    DISK_FULL = "the node's disk is full"
    RESET = "connections break"
    CUT = "links deliver nothing for a while"
    CLOCK = "the node's wall clock jumps"
    CLIENT_KILL = "clients are killed"
    CLIENT_PAUSE = "clients stand still"
    SLOW_DISK = "the disk is slow"
    SLOW_NETWORK = "the network is slow"
    SHORT = "reads and writes of sockets take a part only"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults of one seed."""

    kinds: tuple[Kind, ...]
    #: How many faults strike.
    count: int
    network: NetworkSettings
    disk: DiskSettings
    #: Whether records are synced before they are acknowledged.
    sync_each: bool

    @property
    def is_kept(self) -> bool:
        """Whether what is acknowledged is safe from what may happen."""
        return self.sync_each or Kind.POWER not in self.kinds

    @property
    def names(self) -> str:
        """The kinds, to be read."""
        return ", ".join(kind.name.lower() for kind in self.kinds) or "none"


_STANDING = (Kind.SLOW_DISK, Kind.SLOW_NETWORK, Kind.SHORT)


def draw_plan(rng: Random) -> FaultPlan:
    """Draw what may go wrong."""
    every = list(Kind)
    draw = rng.random()
    if draw < 1 / 8:
        kinds = []
    elif draw < 4 / 8:
        kinds = [rng.choice(every)]
    else:
        kinds = [kind for kind in every if rng.random() < 0.4]
    network, disk = NetworkSettings(), DiskSettings()
    if Kind.SLOW_NETWORK in kinds:
        network.delay_mean_ns = rng.randrange(1, 50) * _MS_NS
        network.buffer_bytes = rng.choice((512, 4096, 64 * 1024))
    if Kind.SHORT in kinds:
        cut_short(rng, network)
    if Kind.SLOW_DISK in kinds:
        disk = slow_disk(rng)
    sync_each = Kind.POWER in kinds and rng.random() < 0.75
    return FaultPlan(tuple(kinds), rng.randint(1, 6), network, disk, sync_each)


class Faults:
    """Lets the faults of a plan strike a node and its clients."""

    def __init__(
        self, world: World, plan: FaultPlan, node: Machine, clients: list[Machine]
    ) -> None:
        self._world = world
        self._plan = plan
        self._node = node
        self._clients = clients
        self._rng = world.stream("faults")
        self.is_over = False
        #: When power was cut.
        self.cuts_ns: list[int] = []
        #: How many have struck.
        self.struck = 0

    def schedule(self, from_s: float, seconds: float) -> None:
        """Draw when they strike."""
        striking = [kind for kind in self._plan.kinds if kind not in _STANDING]
        for _ in range(self._plan.count if striking else 0):
            kind = self._rng.choice(striking)
            due_ns = round((from_s + self._rng.random() * seconds) * SECOND_NS)
            self._world.at(due_ns, lambda kind=kind: self._strike(kind))  # type: ignore[misc]

    def heal(self) -> None:
        """Let nothing go wrong any more; what is dead stays so."""
        self.is_over = True
        self._world.network.mend()
        for machine in (self._node, *self._clients):
            mend_disk(machine.files)
            machine.files.cut_never()
            machine.paused_until_ns = 0

    def _strike(self, kind: Kind) -> None:
        if self.is_over:
            return
        self.struck += 1
        rng, node = self._rng, self._node
        self._world.note("fault", kind.name.lower(), kind.value)
        match kind:
            case Kind.KILL:
                self._kill(node)
            case Kind.KILL_IN_WRITE:
                die_in_a_change(rng, node.files)
            case Kind.STOP:
                node.request_stop()
            case Kind.POWER:
                self.cuts_ns.append(self._world.time.now_ns)
                was_running = node.is_running
                node.power_off(rng)
                if was_running:
                    self._world.on_exit(node)
            case Kind.PAUSE:
                node.pause(rng.randrange(10, 5_000) * _MS_NS)
            case Kind.CLOCK:
                set_clock_wrong(rng, node)
            case Kind.CLIENT_KILL:
                self._kill(rng.choice(self._clients))
            case Kind.CLIENT_PAUSE:
                rng.choice(self._clients).pause(rng.randrange(10, 10_000) * _MS_NS)
            case Kind.DISK_ERROR | Kind.DISK_FULL:
                self._break_disk(kind)
            case Kind.RESET | Kind.CUT:
                self._break_network(kind)

    def _kill(self, machine: Machine) -> None:
        if machine.is_running:
            machine.kill()
            self._world.on_exit(machine)

    def _break_disk(self, kind: Kind) -> None:
        rng, files = self._rng, self._node.files
        (fill_disk if kind is Kind.DISK_FULL else fail_disk)(rng, files)
        # Somebody comes to mend it.
        self._world.after(rng.randrange(100, 3_000) * _MS_NS, self._mend_disk)

    def _mend_disk(self) -> None:
        mend_disk(self._node.files)
        # Directories that have failed are used again after a start only.
        self._kill(self._node)

    def _break_network(self, kind: Kind) -> None:
        rng, node = self._rng, self._node
        client = rng.choice(self._clients)
        if kind is Kind.RESET:
            for sock in list(node.sockets.values()):
                if rng.random() < 0.5:
                    self._world.network.reset(sock)
            return
        until_ns = self._world.time.now_ns + rng.randrange(10, 6_000) * _MS_NS
        ways = [(node.name, client.name), (client.name, node.name)]
        for way in rng.choice((ways, ways[:1], ways[1:])):
            self._world.network.cut(*way, until_ns)
