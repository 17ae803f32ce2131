"""One run of the simulator: a node, three clients, faults, then peace, and a look at what is left.

In the first part the clients work and faults strike. Then everything is mended and whoever is dead
is started; the clients must come to an end, no transaction may stay open, and what is then read
must be what the clients were promised.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import KafkaError
from dohle.server.node import Node
from dohle.storage.directory.meta_properties import InvalidMetaProperties
from dohle.testing.checking.checks import Promise, check
from dohle.testing.checking.history import History
from dohle.testing.simulation.faults import FaultPlan, Faults, Kind, draw_plan
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.workload import COPIERS, INPUT, OUTPUT, Workload
from dohle.testing.simulation.world import Stuck, World

#: How long faults may strike, and how long it may then take until all is well.
ACTIVE_S = 6.0
PEACE_S = 300.0
_CLIENTS = 3
_PORT = 9092


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run."""

    seed: int
    faults: str
    roles: str
    problems: tuple[str, ...]
    digest: str
    virtual_s: float
    real_s: float
    callbacks: int
    acknowledged: int
    sends: int
    lives: int

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.virtual_s:.1f} s in {self.real_s:.2f} s, {self.callbacks} "
            f"callbacks, {self.lives} lives, {self.acknowledged} of {self.sends} records "
            f"acknowledged; {self.roles}; faults: {self.faults}; digest {self.digest}"
        )

    @property
    def command(self) -> str:
        """How to see it again."""
        return f"python -m dohle.testing.simulation --seed {self.seed} --trace"


def _draw_third(rng: Random, roles: Sequence[str]) -> str:
    """Draw any role, and more often one that nobody else has."""
    return rng.choice(("administer", "join", "scatter", rng.choice(roles)))


def _draw_compaction(rng: Random) -> dict[str, str]:
    """Draw the settings of topics that are cleaned again and again."""
    return {
        "cleanup.policy": "compact",
        "internal.segment.bytes": rng.choice(("300", "2000")),
        "min.cleanable.dirty.ratio": rng.choice(("0", "0.5")),
        "delete.retention.ms": rng.choice(("0", "500", "86400000")),
    }


class Run:
    """A run of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        active_s: float = ACTIVE_S,
        plan: FaultPlan | None = None,
        role: str | None = None,
        is_cleaned: bool | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """``role`` is that of the third client, if it is not to be drawn.

        ``is_cleaned`` says whether topics are compacted, if that is not to be drawn either.
        """
        rng = Random(f"run/{seed}")
        self.plan = draw_plan(rng) if plan is None else plan
        self.world = World(
            seed,
            network=self.plan.network,
            callback_ns=rng.choice((2_000, 10_000, 50_000)),
            trace=trace,
        )
        self._active_s = active_s
        self._is_cleaned = rng.random() < 0.5 if is_cleaned is None else is_cleaned
        self.history = History()
        self.workload = Workload(
            f"node:{_PORT}",
            self.history,
            now_ns=lambda: self.world.time.now_ns,
            is_over=lambda: self._is_over,
            partitions=rng.randint(1, 3),
            is_kept=self.plan.is_kept,
            configs=_draw_compaction(rng) if self._is_cleaned else {},
        )
        self._is_over = False
        self.node = self.world.machine("node")
        self.node.disk = self.plan.disk
        self._properties = self._draw_properties(rng)
        self.workload.log_dirs = self._properties["log.dirs"].split(",")
        roles = self.workload.roles()
        third = _draw_third(rng, sorted(roles)) if role is None else role
        drawn = ["produce", rng.choice(("transact", "copy")), third]
        self.clients = {self.world.machine(f"client-{n}"): role for n, role in enumerate(drawn)}
        self.faults = Faults(self.world, self.plan, self.node, list(self.clients))
        self._rng = rng
        self.world.on_exit = self._restart_later

    def _draw_properties(self, rng: Random) -> dict[str, str]:
        directories = rng.choice(("/disk/a", "/disk/a,/disk/b"))
        properties = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://node:{_PORT}",
            "log.dirs": directories,
            "offsets.topic.num.partitions": str(rng.randint(1, 3)),
            "transaction.state.log.num.partitions": str(rng.randint(1, 3)),
            "group.consumer.session.timeout.ms": "3000",
            "group.consumer.min.session.timeout.ms": "3000",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": rng.choice(("0", "300")),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "log.segment.bytes": rng.choice(("1048576", "1073741824")),
            "metadata.log.max.record.bytes.between.snapshots": rng.choice(("2000", "20971520")),
            "metadata.max.retention.bytes": rng.choice(("4000", "104857600")),
            "log.index.interval.bytes": rng.choice(("64", "4096")),
        }
        if self._is_cleaned:
            properties |= {
                "log.cleaner.backoff.ms": rng.choice(("20", "300")),
                "log.cleaner.threads": rng.choice(("1", "2")),
                "log.cleaner.dedupe.buffer.size": rng.choice(("2000", "134217728")),
            }
        if self.plan.sync_each:
            properties["log.flush.interval.messages"] = "1"
        return properties

    # Programs

    async def _serve(self, host: SimulatedHost) -> None:
        """Run a node as ``dohle start`` does."""
        config, _ = BrokerConfig.from_properties(self._properties)

        def fatal(reason: str) -> None:
            self.world.note("fatal", host.machine.name, reason)
            host.stopping.set()

        node = Node(config, host=host, on_fatal=fatal)
        try:
            await node.start()
        except (OSError, KafkaError, InvalidMetaProperties, RuntimeError) as error:
            if not self._may_fail_to_start:
                raise
            self.world.note("refused", host.machine.name, f"to start: {error}")
            return
        await host.stopping.wait()
        try:
            await node.stop()
        except (OSError, KafkaError) as error:
            self.world.note("refused", host.machine.name, f"to stop cleanly: {error}")

    @property
    def _may_fail_to_start(self) -> bool:
        broken = (Kind.DISK_ERROR, Kind.DISK_FULL)
        return not self.faults.is_over and any(kind in self.plan.kinds for kind in broken)

    def _restart_later(self, machine: Machine) -> None:
        if machine is self.node or (machine in self.clients and not self._is_over):
            life = machine.life

            def start() -> None:
                if not machine.is_running and machine.life == life:
                    self._start(machine)

            self.world.after(self._rng.randrange(1_000_000, 2_000_000_000), start)

    def _start(self, machine: Machine) -> None:
        if machine is self.node:
            machine.start(self._serve)
        else:
            machine.start(self.workload.roles()[self.clients[machine]])

    # The run

    def go(self) -> Result:
        """Run, and check."""
        began = time.perf_counter()
        problems: list[str] = []
        # The collector runs what is left to be run at moments that differ from process to process.
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            self._phases()
        except Stuck as error:
            running = [each.name for each in self.world.machines.values() if each.is_running]
            problems.append(f"L0 stuck: {error}; running: {', '.join(running)}")
        finally:
            self.world.close()
            if is_collecting:
                gc.enable()
        problems += [f"R20 error nobody caught: {error}" for error in self.world.errors]
        if not problems:
            self.history.cuts_ns = self.faults.cuts_ns
            promise = Promise.KEPT if self.plan.is_kept else Promise.PREFIX
            problems += map(str, check(self.history, promise))
        sends = self.history.sends
        return Result(
            self.world.seed,
            self.plan.names,
            ", ".join(self.clients.values()),
            tuple(problems),
            self.world.digest,
            self.world.now_s,
            time.perf_counter() - began,
            self.world.callbacks,
            sum(send.offset is not None for send in sends),
            len(sends),
            self.node.life,
        )

    def _phases(self) -> None:
        world = self.world
        self._start(self.node)
        checker = world.machine("checker")
        checker.start(self.workload.set_up)
        world.run_until(lambda: not checker.is_running, PEACE_S)
        if "copy" in self.clients.values():
            self.history.copies.append((INPUT, OUTPUT, COPIERS))
        for machine in self.clients:
            self._start(machine)
        self.faults.schedule(world.now_s, self._active_s)
        world.run_for(self._active_s)
        self.faults.heal()
        self._is_over = True
        world.run_until(lambda: not any(each.is_running for each in self.clients), PEACE_S)
        world.run_until(lambda: self.node.is_running, PEACE_S)
        checker.start(self.workload.inspect)
        world.run_until(lambda: not checker.is_running, PEACE_S)
