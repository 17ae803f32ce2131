"""Runs of a quorum: a safety phase in which anything may fail, then a core that must recover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dohle.core.ids import BrokerId
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.protocol.schema import Request
from dohle.raft import events
from dohle.raft.machine import Raft
from dohle.raft.membership import Membership, Voter
from dohle.raft.voters import VoterSet, key_of
from tests.raft.simulation.checker import Violation
from tests.raft.simulation.world import (
    LISTENER,
    SimulatedNode,
    World,
    directory,
    endpoint,
)

SAFETY_MS = 12_000
#: L1: fetch timeout and twenty elections; and catching up.
LIVENESS_MS = 30_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a run is made of; drawn by seed."""

    voters: int
    spares: int
    brokers: int
    is_dynamic: bool
    faults: tuple[str, ...]


FAULTS = (
    "crash",
    "cut",
    "cut one way",
    "pause",
    "snapshot",
    "change",
    "wipe",
    "flaky",
    "upgrade",
    "failing sync",
    "reset",
)


class Run:
    """One run."""

    def __init__(
        self,
        seed: int,
        machine: Callable[..., Raft] = Raft,
        shape: Shape | None = None,
    ) -> None:
        self.world = world = World(seed, machine)
        self.rng = world.rng
        self.shape = shape or self._draw()
        self._admin_tokens = 0
        #: From then on nothing outside the core comes back.
        self._is_recovering = False
        self._generations: dict[int, int] = {}
        self._build()

    def _draw(self) -> Shape:
        rng = self.rng
        is_dynamic = rng.random() < 0.6
        count = rng.randint(2, 5)
        return Shape(
            voters=rng.choice([1, 2, 3, 3, 3, 4, 5, 5]),
            spares=rng.randint(0, 2) if is_dynamic else 0,
            brokers=rng.randint(0, 1),
            is_dynamic=is_dynamic,
            faults=tuple(sorted(rng.sample(FAULTS, count))),
        )

    def _build(self) -> None:
        shape, world = self.shape, self.world
        ids = range(1, shape.voters + 1)
        voters = tuple(Voter(BrokerId(id), directory(id), (endpoint(id),)) for id in ids)
        static = tuple(Voter(BrokerId(id), ZERO_UUID, (endpoint(id),)) for id in ids)
        self._membership = Membership(1, voters) if shape.is_dynamic else None
        self._static = () if shape.is_dynamic else static
        self._servers = tuple(range(1, shape.voters + shape.spares + 1))
        for id in (*ids, *(shape.voters + n + 1 for n in range(shape.spares))):
            self._format(id, is_voter=id <= shape.voters)
        for n in range(shape.brokers):
            world.add_node(
                100 + n,
                membership=None,
                static_voters=self._static,
                is_controller=False,
                servers=self._servers,
            )

    def _format(self, id: int, *, is_voter: bool) -> None:
        self.world.add_node(
            id,
            membership=self._membership if is_voter else None,
            static_voters=self._static,
            generation=self._generations.get(id, 0),
            auto_join=self.rng.random() < 0.3,
            servers=self._servers,
        )

    # The run

    def run(self) -> None:
        """Run both phases; raises Violation."""
        world = self.world
        for node in list(world.nodes.values()):
            world.after(self.rng.random() * 500, self._starter(node))
        world.after(100, self._append)
        for fault in self.shape.faults:
            world.after(self._pause_ms(), self._fault(fault))
        if "flaky" in self.shape.faults:
            world.crash_rate = 0.002
        if "failing sync" in self.shape.faults:
            world.sync_failure_rate = 0.01
        if "reset" in self.shape.faults:
            world.reset_rate = self.rng.choice([0.01, 0.1])
        world.run_until(SAFETY_MS)
        self._check_liveness()

    def _starter(self, node: SimulatedNode) -> Callable[[], None]:
        def start() -> None:
            if not node.is_alive and self.world.nodes[node.id] is node:
                node.start()

        return start

    def _pause_ms(self) -> float:
        return self.rng.uniform(300, 4_000)

    def _append(self) -> None:
        """Let every node that leads append something."""
        world = self.world
        for node in list(world.nodes.values()):
            raft = node.raft
            if raft is None or node.is_paused or not raft.is_leader:
                continue
            for _ in range(self.rng.randint(1, 3)):
                node.log.append(raft.leader.epoch, world.next_payload())
            node.handle(events.LogChanged())
        world.after(self.rng.uniform(20, 300), self._append)

    # Faults

    def _fault(self, name: str) -> Callable[[], None]:
        actions = {
            "crash": self._crash,
            "cut": self._cut,
            "cut one way": self._cut_one_way,
            "pause": self._pause,
            "snapshot": self._snapshot,
            "change": self._change_voters,
            "wipe": self._wipe,
            "flaky": self._restart_the_dead,
            "upgrade": self._upgrade,
            "failing sync": self._restart_the_dead,
            "reset": self._do_nothing,
        }
        action = actions[name]

        def again() -> None:
            if self.world.now_ms < SAFETY_MS:
                action()
                self.world.after(self._pause_ms(), again)

        return again

    def _do_nothing(self) -> None:
        """Leave it to the world, which loses connections by chance."""

    def _any_node(self) -> SimulatedNode:
        """Pick a node; leaders more often."""
        nodes = list(self.world.nodes.values())
        leaders = [node for node in nodes if node.raft is not None and node.raft.is_leader]
        return self.rng.choice(leaders if leaders and self.rng.random() < 0.5 else nodes)

    def _crash(self) -> None:
        node = self._any_node()
        if node.is_alive:
            node.crash()
        if self.rng.random() < 0.2:  # A power cut of all.
            for each in self.world.nodes.values():
                if each.is_alive:
                    each.crash()
        self.world.after(self.rng.uniform(10, 3_000), self._restart_the_dead)

    def _restart_the_dead(self) -> None:
        if self._is_recovering:
            return
        for node in list(self.world.nodes.values()):
            if not node.is_alive:
                node.start()

    def _cut(self) -> None:
        node = self._any_node()
        links = {
            link
            for other in self.world.nodes
            if other != node.id
            for link in ((node.id, other), (other, node.id))
        }
        self._cut_for_a_while(links)

    def _cut_one_way(self) -> None:
        node = self._any_node()
        others = [other for other in self.world.nodes if other != node.id]
        if not others:
            return
        chosen = self.rng.sample(others, self.rng.randint(1, len(others)))
        if self.rng.random() < 0.5:
            self._cut_for_a_while({(node.id, other) for other in chosen})
        else:
            self._cut_for_a_while({(other, node.id) for other in chosen})

    def _cut_for_a_while(self, links: set[tuple[int, int]]) -> None:
        self.world.cut |= links

        def heal() -> None:
            if not self._is_recovering:
                self.world.cut -= links

        self.world.after(self.rng.choice([500, 3_000, 9_000]), heal)

    def _pause(self) -> None:
        node = self._any_node()
        node.is_paused = True
        incarnation = node.incarnation

        def resume() -> None:
            if node.incarnation == incarnation:
                self._resume(node)

        self.world.after(self.rng.uniform(100, 6_000), resume)

    def _resume(self, node: SimulatedNode) -> None:
        node.is_paused = False
        waiting, node.inbox = node.inbox, []
        for event in [*waiting, events.Tick()]:
            node.handle(event)

    def _snapshot(self) -> None:
        node = self._any_node()
        log = node.log
        if not node.is_alive or node.is_paused or node.applied_offset <= log.start_offset:
            return
        log.take_snapshot(node.applied_offset)
        if self.rng.random() < 0.7:
            log.forget_before_newest()
        node.handle(events.LogChanged())

    def _ask_leaders(self, request: Request) -> None:
        for node in list(self.world.nodes.values()):
            if node.raft is not None and node.raft.is_leader and not node.is_paused:
                self._admin_tokens -= 1
                node.handle(events.Received(self._admin_tokens, request, 0, LISTENER))

    def _change_voters(self) -> None:
        nodes = [node for node in self.world.nodes.values() if node.config.is_controller]
        node = self.rng.choice(nodes)
        key = node.config.key
        is_addition = self.rng.random() < 0.5
        if not is_addition and not self._can_do_without(node):
            return
        if is_addition:
            listener = Listener(name=LISTENER, host=f"node-{node.id}", port=9000 + node.id)
            self._ask_leaders(
                AddRaftVoterRequest(
                    cluster_id="cluster",
                    voter_id=node.id,
                    voter_directory_id=key.directory_id,
                    listeners=(listener,),
                )
            )
        else:
            self._ask_leaders(
                RemoveRaftVoterRequest(
                    cluster_id="cluster",
                    voter_id=node.id,
                    voter_directory_id=key.directory_id,
                )
            )

    def _upgrade(self) -> None:
        for node in list(self.world.nodes.values()):
            raft = node.raft
            if raft is not None and raft.is_leader and not node.is_paused:
                node.handle(events.UpgradeKraftVersion(-1, raft.leader.epoch, 1))

    def _wipe(self) -> None:
        """Format a controller anew, if a majority of every set keeps what it has."""
        node = self._any_node()
        if not self.shape.is_dynamic or not node.config.is_controller:
            return
        if not self._has_core(lambda other: other is not node):
            return
        if node.is_alive:
            node.crash()
        self.world.checker.wiped.append(node)
        self._generations[node.id] = self._generations.get(node.id, 0) + 1
        self._format(node.id, is_voter=False)
        self.world.after(self.rng.uniform(10, 2_000), self._restart_the_dead)

    # Recovery

    def _voter_sets(self) -> list[VoterSet]:
        sets = []
        for node in self.world.nodes.values():
            latest = node.log.memberships.latest
            voters = VoterSet(latest.voters if latest.kraft_version else self._static)
            if voters.voters and voters not in sets:
                sets.append(voters)
        return sets

    def _can_do_without(self, node: SimulatedNode) -> bool:
        """Tell whether the voters that are left have a majority of nodes that still exist."""
        keys = [each.config.key for each in self.world.nodes.values()]
        for voters in self._voter_sets():
            left = [each for each in map(key_of, voters.voters) if each != node.config.key]
            if sum(each in keys for each in left) < len(left) // 2 + 1:
                return False
        return True

    def _has_core(self, is_in: Callable[[SimulatedNode], bool]) -> bool:
        keys = [node.config.key for node in self.world.nodes.values() if is_in(node)]
        return all(
            sum(any(key_of(v).fits(key) for key in keys) for v in voters.voters) >= voters.majority
            for voters in self._voter_sets()
        )

    def _has_core_without(self, ids: set[int]) -> bool:
        return self._has_core(lambda node: node.id not in ids)

    def _check_liveness(self) -> None:
        """Heal a core that has a majority of every voter set; nothing else comes back."""
        world = self.world
        world.crash_rate = world.sync_failure_rate = world.reset_rate = 0.0
        self._is_recovering = True
        if not self._has_core(lambda node: True):
            return  # Too many disks were lost while voters were removed.
        outside: set[int] = set()
        for node in self.rng.sample(list(world.nodes.values()), len(world.nodes)):
            left_out = {*outside, node.id}
            if self.rng.random() < 0.5 and self._has_core_without(left_out):
                outside = left_out
        for id in sorted(outside):
            if world.nodes[id].is_alive:
                world.nodes[id].crash()
        world.cut = {link for link in world.cut if set(link) & outside}
        core = [node for node in world.nodes.values() if node.id not in outside]
        for node in core:
            if node.is_paused:
                self._resume(node)
            if not node.is_alive:
                node.start()
        goal = world.checker.committed_end + 1
        if not world.run_until(
            world.now_ms + LIVENESS_MS, lambda: all(each.applied_offset >= goal for each in core)
        ):
            states = [
                (each.id, each.applied_offset, each.raft and each.raft.replica.state)
                for each in core
            ]
            raise Violation(f"L1: no progress to {goal} of a healed core: {states}")
        self._check_equal(core)

    def _check_equal(self, core: list[SimulatedNode]) -> None:
        """Below their high watermarks all hold the same (R7)."""
        for node in core:
            self.world.checker.applied(node)
