"""``python -m bench.versus [--rounds N] [--quick] [--json FILE] [--profile] [parts ...]``.

Apache Kafka comes from Maven, as for tests/jvm. Parts are named by their letters or names.
"""

from __future__ import annotations

import argparse
import signal
import sys

from tests.jvm import oracle

from bench.comparison.figures import Comparison
from bench.comparison.options import parse_options
from bench.comparison.results import Report
from bench.comparison.table import show
from bench.comparison.warm_up import FULL, QUICK, Limits, WarmUps
from bench.processes import touch_memory
from bench.versus.figures import KAFKA
from bench.versus.profile import NoProfiler, profile
from bench.versus.turns import PARTS, Pace, Stand, play, stand

REPORT = Report("versus", "dohle beside Apache Kafka", KAFKA)
ROUNDS, ROUNDS_QUICK = 5, 1
#: About what one turn has on disk at a time.
_MEMORY_BYTES = 2_000_000_000


def main() -> int:
    """Measure, print, and keep the results."""
    options = _options()
    # SIGTERM cleans up as an error does: it ends the child processes and removes the folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    pace = Pace(options.quick, options.limits)
    names = [PARTS.get(name, name) for name in options.parts] or list(PARTS.values())
    try:
        classpath = oracle.classpath()
        with stand(classpath) as bench:
            if options.profile:
                for name in names:
                    print(profile(bench, name, pace), flush=True)
                return 0
            touch_memory(_MEMORY_BYTES // 4 if options.quick else _MEMORY_BYTES)
            rows, warm_ups = _measure(bench, names, pace, options)
    except (oracle.Unavailable, NoProfiler) as reason:
        print(f"bench.versus: {reason}", file=sys.stderr)
        return 1
    show(rows, REPORT.peer, warm_ups)
    if options.quick:
        print(f"Quick: warm-ups of {pace.limits} are too short for a JVM and flatter dohle.")
    return int(options.strict and any(row.is_reached is False for row in rows))


def _measure(
    bench: Stand, names: list[str], pace: Pace, options: argparse.Namespace
) -> tuple[list[Comparison], dict[str, WarmUps]]:
    """Measure part after part; what a run that is stopped has measured till then is kept."""
    rows: list[Comparison] = []
    warm_ups: dict[str, WarmUps] = {}
    try:
        for name in names:
            played = play(bench, name, pace, rounds=options.rounds, tell=_tell)
            rows += played.rows
            warm_ups[played.rows[0].part] = played.warm_ups
            if options.json is not None:
                REPORT.keep(rows, options.json, quick=options.quick, warm_ups=warm_ups)
    finally:
        if rows and options.json is not None and not options.quick:
            note = f"warm-up of {pace.limits}"
            REPORT.end(rows, options.json, note=note, warm_ups=warm_ups)
    return rows, warm_ups


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.versus", description=__doc__)
    known = [*PARTS, *PARTS.values()]
    parser.add_argument("parts", nargs="*", choices=[[], *known], metavar="|".join(PARTS.values()))
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
    options = parse_options(parser, REPORT, rounds=ROUNDS, rounds_quick=ROUNDS_QUICK)
    usual = QUICK if options.quick else FULL
    least_s, most_s = options.warm_up or (usual.least_s, usual.most_s)
    try:
        options.limits = Limits(least_s, most_s, usual.window_s)
    except ValueError as reason:
        parser.error(str(reason))
    return options


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
