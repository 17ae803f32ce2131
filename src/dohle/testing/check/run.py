"""A check: rounds of load and faults, each judged when all is mended, and a report in the end.

Rounds keep memory within limits however long a check is: each has topics, groups and a history of
its own, which is written down, judged and forgotten.
"""

from __future__ import annotations

import math
import platform
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from random import Random
from time import monotonic_ns
from types import FrameType
from typing import IO

import confluent_kafka

from dohle.testing.check.faults import FaultInjector, FaultKind, Struck
from dohle.testing.check.figures import Figures, count
from dohle.testing.check.inspection import (
    NoProgress,
    create_topics,
    delete_topics,
    inspect,
    leader_of,
)
from dohle.testing.check.late_end import Case, LateEnd
from dohle.testing.check.links import CLIENTS
from dohle.testing.check.load import Load, Recorder, RoundTopics
from dohle.testing.check.nodes import CLUSTERS, Maker, Nodes
from dohle.testing.check.page import page
from dohle.testing.check.record import write_json, write_round
from dohle.testing.check.stuck import StuckClient
from dohle.testing.check.verdict import Anomaly, RoundResult, Verdict
from dohle.testing.checking.checks import check
from dohle.testing.checking.history import History, Outcome
from dohle.testing.node_process import NodeFailed

_NS = 1_000_000_000
#: How long it may take until all is well, when nothing goes wrong any more.
_PEACE_S = 180.0
_PROGRESS_S = 5.0
_VERSIONS_OF_TRANSACTIONS = (1, 2)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked for."""

    cluster: str
    minutes: float
    kinds: tuple[FaultKind, ...]
    seed: int
    out: Path
    round_minutes: float
    rate: float
    libs: Path | None = None

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return max(math.ceil(self.minutes / self.round_minutes - 1e-9), 1)

    @property
    def round_s(self) -> float:
        """How long each of them is."""
        return self.minutes * 60 / self.rounds


@dataclass(slots=True)
class _Interrupt:
    """Ctrl-C or SIGTERM: the first ends the round that runs, the second ends everything."""

    event: threading.Event = field(default_factory=threading.Event)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        self.event.set()


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    interrupt = _Interrupt()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield interrupt.event
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class CheckRun:
    """One check, from the start of the nodes to the report."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began_ns = monotonic_ns()
        self._figures = Figures()
        self._verdict = Verdict(
            cluster=settings.cluster,
            minutes=settings.minutes,
            seed=settings.seed,
            faults=[kind.value for kind in settings.kinds],
            rate=settings.rate,
            began=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=_versions(settings),
        )

    @property
    def _now_s(self) -> float:
        return (monotonic_ns() - self._began_ns) / _NS

    def go(self) -> Verdict:
        """Run it, write the report, and return the verdict."""
        out = self._settings.out
        out.mkdir(parents=True, exist_ok=True)
        with (
            _interruptible() as interrupted,
            tempfile.TemporaryDirectory(prefix="dohle-check-", ignore_cleanup_errors=True) as at,
        ):
            makers = CLUSTERS[self._settings.cluster]
            nodes = Nodes(makers, Path(at), out, self._settings.libs)
            try:
                self._run(nodes, interrupted)
            except KeyboardInterrupt:
                self._verdict.notes.append("Ended in the middle of a round, which was not judged.")
            finally:
                nodes.close()
        return self._report()

    def _run(self, nodes: Nodes, interrupted: threading.Event) -> None:
        kinds = list(self._settings.kinds)
        _say(f"starting three nodes: {self._settings.cluster}")
        nodes.start(with_disks=FaultKind.FULL_DISK in kinds)
        if nodes.no_disks:
            kinds.remove(FaultKind.FULL_DISK)
            self._verdict.notes.append(
                f"Disks could not be filled: this machine cannot mount any ({nodes.no_disks})."
            )
        # Time counts from here.
        self._began_ns = monotonic_ns()
        with (self._settings.out / "history.jsonl").open("w") as history:
            for number in range(1, self._settings.rounds + 1):
                if interrupted.is_set():
                    break
                self._verdict.rounds.append(
                    _Round(self._settings, nodes, self._began_ns, number).go(
                        kinds, interrupted, history, self._figures
                    )
                )
                self._verdict.notes.extend(self._verdict.rounds[-1].notes)
                self._verdict.seconds = self._now_s
                _say(str(self._verdict.rounds[-1]))
        if interrupted.is_set():
            self._verdict.notes.append("It was interrupted; what is told here is all that was run.")
        for node, maker in nodes.makers.items():
            if maker is Maker.DOHLE and "Traceback" in nodes.log(node):
                self._verdict.notes.append(f"The log of node {node} has a traceback: look at it.")

    def _report(self) -> Verdict:
        out, verdict = self._settings.out, self._verdict
        verdict.counts = self._figures.counts
        write_json(out / "verdict.json", verdict.as_json(self._figures))
        (out / "report.html").write_text(page(verdict, self._figures))
        return verdict


class _Round:
    """Load and faults for some minutes, then peace, and a look at what is left."""

    def __init__(self, settings: Settings, nodes: Nodes, began_ns: int, number: int) -> None:
        self._settings = settings
        self._nodes = nodes
        self._number = number
        self._topics = RoundTopics(number)
        self._recorder = Recorder(History(), began_ns)
        self._anomalies: list[Anomaly] = []
        self._notes: list[str] = []

    @property
    def _now_s(self) -> float:
        return self._recorder.now_ns / _NS

    def go(
        self, kinds: list[FaultKind], interrupted: threading.Event, file: IO[str], figures: Figures
    ) -> RoundResult:
        """Run it, and judge."""
        topics, recorder, nodes = self._topics, self._recorder, self._nodes
        seed = f"{self._settings.seed}/{self._number}"
        began_s = self._now_s
        late: list[LateEnd] = []
        struck: list[Struck] = []
        try:
            create_topics(nodes.bootstrap, topics.all, _PEACE_S)
            load = Load(nodes.bootstrap, topics, recorder, self._settings.rate, seed)
            faults = FaultInjector(
                nodes,
                kinds,
                Random(f"{seed}/faults"),
                lambda: self._now_s,
                lambda: leader_of(nodes.bootstrap, topics.input, 0),
            )
            struck = faults.struck
            load.start()
            faults.start()
            self._watch(began_s + self._settings.round_s, interrupted, struck)
            self._make_peace(faults, load)
            inspect(nodes.bootstrap, topics.all, topics.groups, recorder.history, _PEACE_S)
            late = self._late_ends()
        except (NodeFailed, NoProgress) as error:
            self._found("L0 stuck", str(error))
        else:
            for violation in check(recorder.history):
                self._found(violation.check, violation.text)
        write_round(file, self._number, recorder.history)
        counts = count(recorder.history, topics.groups)
        figures.add(recorder.history, topics, counts)
        delete_topics(nodes.bootstrap, topics.all)
        return RoundResult(
            self._number, began_s, self._now_s, counts, struck, self._anomalies, late, self._notes
        )

    def _found(self, what: str, text: str) -> None:
        self._anomalies.append(Anomaly(what, text, self._now_s))

    def _watch(self, until_s: float, interrupted: threading.Event, struck: list[Struck]) -> None:
        """Wait, and tell how it goes."""
        while (left_s := until_s - self._now_s) > 0 and not interrupted.is_set():
            interrupted.wait(min(left_s, _PROGRESS_S))
            now = next((each.text for each in struck[-1:] if each.ended_s is None), "all is well")
            history = self._recorder.history
            acknowledged = sum(send.at_ns >= 0 for send in history.sends)
            committed = sum(each.outcome is Outcome.OK for each in history.transactions)
            _say(
                f"{self._now_s:6.0f} s of {self._settings.minutes * 60:.0f}, round {self._number} "
                f"of {self._settings.rounds}: {acknowledged} records acknowledged, {committed} "
                f"transactions committed, {len(struck)} faults; {now}"
            )

    def _make_peace(self, faults: FaultInjector, load: Load) -> None:
        faults.finish()
        if faults.failure is not None:
            self._found("H0 the check itself failed", repr(faults.failure))
        for surprise in faults.surprises:
            self._found("L1 a node ended by itself", surprise)
        self._nodes.wait_until_ready(_PEACE_S)
        _say(f"{self._now_s:6.0f} s, round {self._number}: all is mended, looking at what is there")
        for client in self._finish(load):
            self._found("L0 stuck", f"client {client} has not come to its end")

    def _finish(self, load: Load) -> list[StuckClient]:
        """Let clients end; return those that do not.

        Where librdkafka alone is to blame, breaking connections lets it go on. That excuses no
        node: a request that is not answered ends by its own time limit, long before.
        """
        stuck = load.finish(_PEACE_S)
        if not stuck or not all(each.is_known_defect for each in stuck):
            return stuck
        nodes = self._nodes
        nodes.links.cut((CLIENTS, node) for node in nodes.makers)
        nodes.links.mend(reset=True)
        left = load.finish(_PEACE_S)
        if not left:
            self._notes.append(
                f"Round {self._number}: {', '.join(each.name for each in stuck)} went on only when "
                "connections were broken, as librdkafka's issue 5456 has it."
            )
        return left

    def _late_ends(self) -> list[LateEnd]:
        found = []
        for each in _VERSIONS_OF_TRANSACTIONS:
            case = Case(self._nodes.bootstrap, self._nodes.links, each, self._number)
            late = case.run()
            if late.problem:
                self._found("L0 stuck", f"late EndTxn, transactions v{each}: {late.problem}")
            elif not late.is_allowed:
                for text in late.violations:
                    self._found("T3 late EndTxn", f"transactions v{each}: {text}")
            found.append(late)
            delete_topics(self._nodes.bootstrap, [case.topic])
        return found


def _versions(settings: Settings) -> dict[str, str]:
    found = {
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    makers = CLUSTERS[settings.cluster]
    if Maker.DOHLE in makers:
        found["dohle"] = version("dohle")
    if Maker.KAFKA in makers and settings.libs is not None:
        names = (
            re.match(r"kafka_[\d.]+-(.*)\.jar$", each.name) for each in settings.libs.iterdir()
        )
        found["Apache Kafka"] = next((name[1] for name in names if name), "unknown")
    return found


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
