"""What goes wrong during a check, drawn from a seed: one fault after the other, and rests.

A fault strikes one node or several and is mended after some seconds; the next one may come before
its victims have recovered. A quarter of the time nothing is wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from random import Random

from dohle.testing.check.links import CLIENTS, Way
from dohle.testing.check.nodes import Nodes

_QUIET_S = 4.0
#: Longer than the session of a broker.
_LONGEST_S = 8.0
_LEFT_BYTES_MAX = 64 * 1024


class FaultKind(Enum):
    """A kind of fault."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"
    CUT = "cut"
    FULL_DISK = "full-disk"

    @property
    def explanation(self) -> str:
        """What it does, for people."""
        return {
            FaultKind.KILL: "nodes end with SIGKILL, and are started again",
            FaultKind.PAUSE: "nodes stand still (SIGSTOP), and go on",
            FaultKind.STOP: "a node is asked to stop (SIGTERM), and is started again",
            FaultKind.CUT: "links between nodes, or between clients and a node, deliver nothing",
            FaultKind.FULL_DISK: "a node's disk is full; it gets room and is started again",
        }[self]


@dataclass(slots=True)
class Struck:
    """A fault that has struck."""

    kind: str
    nodes: tuple[int, ...]
    text: str
    began_s: float
    ended_s: float | None = None

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return 0.0 if self.ended_s is None else self.ended_s - self.began_s


class FaultInjector:
    """Lets faults strike, on a thread of its own, until it is told to stop."""

    def __init__(
        self,
        nodes: Nodes,
        kinds: list[FaultKind],
        rng: Random,
        now_s: Callable[[], float],
        leader: Callable[[], int | None],
        # Of a fault.
        longest_s: float = _LONGEST_S,
    ) -> None:
        """Prepare; ``leader`` names a node that clients depend on just now."""
        self._nodes = nodes
        self._kinds = kinds
        self._rng = rng
        self._now_s = now_s
        self._leader = leader
        self._longest_s = longest_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self.struck: list[Struck] = []
        #: What nodes did that nobody has made them do.
        self.surprises: list[str] = []
        #: Why there are no more faults, if they could not go on.
        self.failure: Exception | None = None

    def start(self) -> None:
        """Begin, a little later."""
        self._thread.start()

    def finish(self) -> None:
        """Mend what is broken, and start whoever is not there."""
        self._over.set()
        # Faults may have been let strike one by one.
        if self._thread.is_alive():
            self._thread.join()
        self._nodes.links.mend(reset=True)
        for node in self._nodes.makers:
            self._nodes.disks.empty(self._nodes.disk(node))
            self._nodes.resume(node)
        self.start_missing()

    def _run(self) -> None:
        try:
            self._over.wait(_QUIET_S)
            while not self._over.is_set() and self._kinds:
                if self._rng.random() < 0.75:
                    self.strike(self._rng.choice(self._kinds))
                self._over.wait(self._rng.uniform(1, 6))
                self.start_missing()
        except Exception as error:
            self.failure = error

    def start_missing(self) -> None:
        """Start nodes that have ended by themselves, which they should not."""
        for node in self._nodes.makers:
            if node not in self._nodes.running:
                self.surprises.append(
                    f"node {node} ended by itself at {self._now_s():.1f} s:\n"
                    f"{self._nodes.tail(node)}"
                )
                self._nodes.spawn(node)

    @contextmanager
    def _noted(self, kind: FaultKind, victims: list[int], text: str) -> Iterator[Struck]:
        struck = Struck(kind.value, tuple(victims), text, self._now_s())
        self.struck.append(struck)
        try:
            yield struck
        finally:
            struck.ended_s = self._now_s()

    def strike(self, kind: FaultKind) -> None:
        """Let a fault strike, and be mended."""
        match kind:
            case FaultKind.KILL:
                self._kill()
            case FaultKind.PAUSE:
                self._pause()
            case FaultKind.STOP:
                self._stop()
            case FaultKind.CUT:
                self._cut()
            case FaultKind.FULL_DISK:
                self._fill_disk()

    def _victims(self, *counts: int) -> list[int]:
        """Draw some: often one that leads, the controllers or a partition."""
        nodes = list(self._nodes.running)
        first = self._rng.choice((None, None, self._leader, self._nodes.active_controller))
        chosen = first() if first is not None else None
        self._rng.shuffle(nodes)
        if chosen in nodes:
            nodes.remove(chosen)
            nodes.insert(0, chosen)
        return nodes[: self._rng.choice(counts)]

    def _last(self, most_s: float) -> None:
        self._over.wait(self._rng.uniform(0.5, min(most_s, self._longest_s)))

    def _kill(self) -> None:
        victims = self._victims(1, 1, 1, 2, 3)
        with self._noted(FaultKind.KILL, victims, f"killed {_names(victims)}"):
            for node in victims:
                self._nodes.kill(node)
            self._last(6)
            for node in victims:
                self._nodes.spawn(node)

    def _pause(self) -> None:
        victims = self._victims(1, 1, 2)
        with self._noted(FaultKind.PAUSE, victims, f"paused {_names(victims)}"):
            for node in victims:
                self._nodes.pause(node)
            # Both less and more than the session of a broker.
            self._last(_LONGEST_S)
            for node in victims:
                self._nodes.resume(node)

    def _stop(self) -> None:
        (node,) = victims = self._victims(1)
        with self._noted(FaultKind.STOP, victims, f"stopped {_names(victims)}") as struck:
            if not self._nodes.stop(node):
                struck.text += ", which took too long: killed"
            self._last(3)
            self._nodes.spawn(node)

    def _cut(self) -> None:
        text, ways = self._draw_ways()
        victims = sorted({node for way in ways for node in way} - {CLIENTS})
        with self._noted(FaultKind.CUT, victims, text) as struck:
            self._nodes.links.cut(ways)
            self._last(_LONGEST_S)
            is_reset = self._rng.random() < 0.5
            struck.text += ", then connections broke" if is_reset else ", then bytes came late"
            self._nodes.links.mend(reset=is_reset)

    def _draw_ways(self) -> tuple[str, list[Way]]:
        (node,) = self._victims(1)
        others = [each for each in self._nodes.makers if each != node]
        draw = self._rng.randrange(5)
        if draw == 0:
            return f"cut clients from node {node}", [(CLIENTS, node), (node, CLIENTS)]
        if draw == 1:
            ways = _both_ways(node, others)
            return f"cut node {node} from the other nodes, not from clients", ways
        if draw == 2:
            ways = _both_ways(node, [*others, CLIENTS])
            return f"cut node {node} from everybody", ways
        if draw == 3:
            return f"cut what others send to node {node}", [(each, node) for each in others]
        other = self._rng.choice(others)
        return f"cut nodes {node} and {other} from each other", [(node, other), (other, node)]

    def _fill_disk(self) -> None:
        (node,) = victims = self._victims(1)
        left_bytes = self._rng.randrange(_LEFT_BYTES_MAX)
        with self._noted(FaultKind.FULL_DISK, victims, f"filled the disk of node {node}") as struck:
            self._nodes.disks.fill(self._nodes.disk(node), left_bytes)
            self._last(_LONGEST_S)
            self._nodes.disks.empty(self._nodes.disk(node))
            if node in self._nodes.running:
                self._nodes.kill(node)
            else:
                struck.text += ", which ended it"
            self._nodes.spawn(node)


def _both_ways(node: int, others: list[int]) -> list[Way]:
    return [way for each in others for way in ((node, each), (each, node))]


def _names(nodes: list[int]) -> str:
    named = " and ".join(map(str, sorted(nodes)))
    return f"node {named}" if len(nodes) == 1 else f"nodes {named}"
