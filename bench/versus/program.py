"""What the programs have in common that let dohle and Apache Kafka take turns at parts."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from tests.jvm import oracle
from tests.jvm.jvm import Jvm

from bench.comparison.figures import Comparison
from bench.comparison.options import parse_options
from bench.comparison.results import Report
from bench.comparison.table import number, show
from bench.comparison.warm_up import FULL, QUICK, Limits, WarmUps
from bench.processes import Watched, touch_memory
from bench.versus.figures import DOHLE
from bench.versus.profile import NoProfiler, observe, summary
from bench.versus.taking_turns import Outcome, Pace, Part, Skipped, Turn, play, take_turn

W = TypeVar("W", bound=Watched)


class Stand(Protocol[W]):
    """The JVMs that outlive the servers, and how servers are started."""

    @property
    def clients(self) -> Jvm | None: ...

    def server(self, name: str, part: Part[W]) -> AbstractContextManager[W]: ...


@dataclass(frozen=True, slots=True)
class Program(Generic[W]):
    """``python -m`` something: its parts, by letters, and what is started for them."""

    name: str
    about: str | None
    report: Report
    parts: Mapping[str, str]
    find_part: Callable[[str], Part[W]]
    #: Called with the classpath of Apache Kafka.
    stand: Callable[[str], AbstractContextManager[Stand[W]]]
    #: Starts dohle for a part, where Kafka is not needed.
    alone: Callable[[Part[W]], AbstractContextManager[W]]
    #: About what one turn has on disk at a time.
    memory_bytes: int
    rounds: int = 5
    rounds_quick: int = 1

    def main(self) -> int:
        """Measure, print, and keep the results."""
        options = self._options()
        # SIGTERM cleans up as an error does: it ends the child processes and removes the folders.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        pace = Pace(options.quick, options.limits)
        names = [self.parts.get(name, name) for name in options.parts] or [*self.parts.values()]
        if options.alone:
            return self._measure_alone(names, pace, options.rounds)
        try:
            with self.stand(oracle.classpath()) as bench:
                if options.profile:
                    return self._profile(bench, names, pace)
                touch_memory(self.memory_bytes // 4 if options.quick else self.memory_bytes)
                rows, warm_ups = self._measure(bench, names, pace, options)
        except (oracle.Unavailable, NoProfiler) as reason:
            print(f"{self.name}: {reason}", file=sys.stderr)
            return 1
        show(rows, self.report.peer, warm_ups)
        if options.quick:
            print(f"Quick: warm-ups of {pace.limits} are too short for a JVM and flatter dohle.")
        return int(options.strict and any(row.is_reached is False for row in rows))

    def _measure(
        self, bench: Stand[W], names: list[str], pace: Pace, options: argparse.Namespace
    ) -> tuple[list[Comparison], dict[str, WarmUps]]:
        """Measure part after part; what a run that is stopped has measured till then is kept."""
        rows: list[Comparison] = []
        warm_ups: dict[str, WarmUps] = {}
        try:
            for name in names:
                part = self.find_part(name)

                def take(server: str, part: Part[W] = part) -> Outcome:
                    with bench.server(server, part) as started:
                        return take_turn(part, Turn(started, pace, bench.clients))

                try:
                    played = play(part.TITLE, take, pace.limits, rounds=options.rounds, tell=_tell)
                except Skipped as reason:
                    _tell(str(reason))
                    continue
                rows += played.rows
                warm_ups[played.rows[0].part] = played.warm_ups
                if options.json is not None:
                    self.report.keep(rows, options.json, quick=options.quick, warm_ups=warm_ups)
        finally:
            if rows and options.json is not None and not options.quick:
                note = f"warm-up of {pace.limits}"
                self.report.end(rows, options.json, note=note, warm_ups=warm_ups)
        return rows, warm_ups

    def _measure_alone(self, names: list[str], pace: Pace, rounds: int) -> int:
        """Print dohle's own figures, which are comparable with nothing but themselves."""
        for name in names:
            part = self.find_part(name)
            for _ in range(rounds):
                try:
                    with self.alone(part) as server:
                        outcome = take_turn(part, Turn(server, pace))
                except Skipped as reason:
                    print(f"{part.TITLE} is skipped: {reason}", flush=True)
                    break
                for one in outcome.figures:
                    value = f"{number(one.value)} {one.measure.unit}"
                    print(f"{part.TITLE}: {one.case}: {value}", flush=True)
        return 0

    def _profile(self, bench: Stand[W], names: list[str], pace: Pace) -> int:
        for name in names:
            part = self.find_part(name)
            with bench.server(DOHLE, part) as server:
                turn = Turn(server, pace, bench.clients)
                pids = {label: one.pid for label, one in server.processes.items()}
                found = observe(pids, partial(part.turn, turn))
            for label, stacks in found.items():
                print(summary(f"{part.TITLE}, {label}", stacks), flush=True)
        return 0

    def _options(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            prog=self.name,
            description=self.about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        titles = (
            f"{letter}, {name}: {self.find_part(name).TITLE}" for letter, name in self.parts.items()
        )
        parser.add_argument(
            "parts",
            nargs="*",
            choices=[[], *self.parts, *self.parts.values()],
            metavar="part",
            help=f"by letter or name; default: all of them. {'; '.join(titles)}",
        )
        parser.add_argument(
            "--warm-up",
            type=float,
            nargs=2,
            metavar=("LEAST", "MOST"),
            help="seconds of load until the rate has settled, before anything counts; default:"
            f" {FULL}, quick: {QUICK}",
        )
        parser.add_argument(
            "--profile",
            action="store_true",
            help="run dohle alone, under py-spy, and name what takes most of its time",
        )
        parser.add_argument(
            "--alone",
            action="store_true",
            help="run dohle alone, without Kafka and Java; print its figures, keep nothing",
        )
        options = parse_options(
            parser, self.report, rounds=self.rounds, rounds_quick=self.rounds_quick
        )
        usual = QUICK if options.quick else FULL
        least_s, most_s = options.warm_up or (usual.least_s, usual.most_s)
        try:
            options.limits = Limits(least_s, most_s, usual.window_s)
        except ValueError as reason:
            parser.error(str(reason))
        return options


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
