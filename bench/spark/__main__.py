"""``python -m bench.spark [--rounds N] [--quick] [--json FILE] [--strict] [parts ...]``.

Spark's own connector comes from Maven, as for tests/jvm.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tests.jvm import spark_connector
from tests.jvm.kept import Unavailable

from bench.comparison.figures import Comparison
from bench.comparison.options import parse_options
from bench.comparison.results import Report
from bench.comparison.table import show
from bench.spark.cases import PARTS, SINK, SOURCE, cases
from bench.spark.field import MASTER, Field, open_field
from bench.spark.figures import CONNECTOR, DOHLE, Case

REPORT = Report(
    "spark",
    "dohle on Spark beside Spark's own connector for Kafka",
    "connector",
    " Both read and write topics of the same broker, dohle's, in the same Spark session, in turns."
    " The connector delivers at least once in all cases. Rates of streams leave out the first"
    " batch, those of batch writes the start of Spark's Python processes; of a batch of 4 rows the"
    " time is shown, so there less is better.",
    f", {MASTER}",
)
ROUNDS, ROUNDS_QUICK = 3, 1
#: How much is done: in the rounds, and before them, for Java's compilers.
_SCALE, _SCALE_QUICK, _SCALE_WARM_UP = 1.0, 0.25, 0.1


def main() -> int:
    """Measure, print, and keep the results."""
    options = _options()
    # SIGTERM cleans up as an error does: it ends the child processes and removes the folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        jars = spark_connector.jars()
    except Unavailable as reason:
        print(f"bench.spark: {reason}", file=sys.stderr)
        return 1
    parts = [PARTS[name] for name in options.parts or PARTS]
    with open_field(jars) as field:
        _warm_up(field, parts)
        scale = _SCALE_QUICK if options.quick else _SCALE
        rows = _play(cases(field, parts, scale, few=options.quick), options.rounds)
    show(rows, REPORT.peer)
    if options.json is not None:
        REPORT.keep(rows, options.json, quick=options.quick)
        if not options.quick:
            REPORT.end(rows, options.json)
    return int(options.strict and any(row.is_reached is False for row in rows))


def _warm_up(field: Field, parts: list[str]) -> None:
    """Run the long parts briefly; the others leave their first batches out of the figures."""
    long = [part for part in parts if part in (SOURCE, SINK)]
    for case in cases(field, long, _SCALE_WARM_UP, few=True):
        _turn(case, (DOHLE, CONNECTOR), "warm-up")


def _play(measured: list[Case], rounds: int) -> list[Comparison]:
    """Let both take turns at every case; who begins changes from round to round."""
    figures: list[dict[str, list[float]]] = [{DOHLE: [], CONNECTOR: []} for _ in measured]
    for number in range(rounds):
        kinds = (DOHLE, CONNECTOR) if number % 2 == 0 else (CONNECTOR, DOHLE)
        for case, taken in zip(measured, figures, strict=True):
            for kind, figure in _turn(case, kinds, f"round {number + 1} of {rounds}").items():
                taken[kind].append(figure)
    return [
        Comparison(case.part, case.name, case.measure, tuple(taken[DOHLE]), tuple(taken[CONNECTOR]))
        for case, taken in zip(measured, figures, strict=True)
    ]


def _turn(case: Case, kinds: tuple[str, str], when: str) -> dict[str, float]:
    begun = time.monotonic()
    taken = {kind: case.run(kind) for kind in kinds}
    ratio, took_s = taken[DOHLE] / taken[CONNECTOR], time.monotonic() - begun
    line = f"{when}: {case.part}: {case.name}: {ratio:.2f}, {took_s:.1f} s"
    print(line, file=sys.stderr, flush=True)
    return taken


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.spark", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="|".join(PARTS))
    return parse_options(parser, REPORT, rounds=ROUNDS, rounds_quick=ROUNDS_QUICK)


if __name__ == "__main__":
    raise SystemExit(main())
