"""Run all scenarios against Apache Kafka and keep what it answers: ``make oracle-record``.

``python -m tests.oracle.record AREA...`` records some areas only. With ``--bootstrap`` it asks a
broker that runs already, and with ``--check`` it writes nothing, but tells what differs from the
transcripts: with Kafka again, what a scenario leaves to chance.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.jvm import oracle
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.oracle import transcripts
from tests.oracle.areas import CONFIG, all_areas
from tests.oracle.scenario import Scenario, Step, steps_of


def _tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")


@contextmanager
def apache_kafka() -> Iterator[str]:
    """Run Apache Kafka for as long as the block lasts, and give its address."""
    classpath = oracle.classpath()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kafka = ApacheKafka(classpath, folder, CONFIG)
        with Jvm(classpath, folder) as jvm:
            kafka.format(jvm)
        with kafka:
            yield kafka.bootstrap


async def run_area(
    bootstrap: str, area: str, scenarios: dict[str, Scenario]
) -> dict[str, list[Step]]:
    """Run the scenarios of an area one after the other, and tell which ones fail."""
    salt = f"{time.time_ns() // 1000 % 16**6:06x}"  # as long as that of the replay
    found = {}
    for name, scenario in scenarios.items():
        try:
            found[name] = await steps_of(bootstrap, name, scenario, salt)
        except Exception:
            _tell(f"{area}/{name} failed")
            traceback.print_exc()
    return found


def record(bootstrap: str, areas: Sequence[str], *, check: bool) -> bool:
    """Record or check areas, and tell whether all is well."""
    well = True
    for area, scenarios in all_areas().items():
        if areas and area not in areas:
            continue
        steps = asyncio.run(run_area(bootstrap, area, scenarios))
        well = well and len(steps) == len(scenarios)
        _tell(f"{area}: {sum(map(len, steps.values()))} steps")
        if not check:
            transcripts.write(area, steps)
            continue
        before = transcripts.read(area)
        for name, now in steps.items():
            for each in transcripts.differences(f"{area}/{name}", before[name], now):
                _tell(each)
                well = False
    return well


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*")
    parser.add_argument("--bootstrap")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.bootstrap:
        return not record(options.bootstrap, options.areas, check=options.check)
    try:
        with apache_kafka() as bootstrap:
            return not record(bootstrap, options.areas, check=options.check)
    except oracle.Unavailable as reason:
        sys.stderr.write(f"{reason}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
