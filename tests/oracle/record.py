"""Run all scenarios against Apache Kafka and keep what it answers: ``make oracle-record``.

``python -m tests.oracle.record AREA...`` records some areas only; those whose names begin with
``three-`` are asked of three nodes. With ``--bootstrap`` it asks a
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
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.jvm import oracle
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.oracle import transcripts
from tests.oracle.areas import (
    CONFIG,
    all_areas,
    cluster_areas,
    has_static_voters,
    needs_own_cluster,
)
from tests.oracle.kafka_cluster import three_kafkas
from tests.oracle.layout import Listeners, cluster_steps_of
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


#: Runs a scenario of this name, with this salt in its names.
Ask = Callable[[str, Scenario, str], Awaitable[list[Step]]]


async def run_area(ask: Ask, area: str, scenarios: dict[str, Scenario]) -> dict[str, list[Step]]:
    """Run the scenarios of an area one after the other, and tell which ones fail."""
    salt = f"{time.time_ns() // 1000 % 16**6:06x}"  # as long as that of the replay
    found = {}
    for name, scenario in scenarios.items():
        try:
            found[name] = await ask(name, scenario, salt)
        except Exception:
            _tell(f"{area}/{name} failed")
            traceback.print_exc()
    return found


def record(ask: Ask, areas: Mapping[str, dict[str, Scenario]], *, check: bool) -> bool:
    """Record or check areas, and tell whether all is well."""
    well = True
    for area, scenarios in areas.items():
        steps = asyncio.run(run_area(ask, area, scenarios))
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


def at(where: str | Listeners) -> Ask:
    """Return how scenarios ask a broker, or a cluster."""
    if isinstance(where, str):
        return lambda name, scenario, salt: steps_of(where, name, scenario, salt)
    return lambda name, scenario, salt: cluster_steps_of(where, name, scenario, salt)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*")
    parser.add_argument("--bootstrap")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()

    def chosen(areas: dict[str, dict[str, Scenario]]) -> dict[str, dict[str, Scenario]]:
        return {k: v for k, v in areas.items() if not options.areas or k in options.areas}

    check, alone, together = options.check, chosen(all_areas()), chosen(cluster_areas())
    if options.bootstrap:
        return not record(at(options.bootstrap), alone, check=check)
    well = True
    try:
        if alone:
            with apache_kafka() as bootstrap:
                well = record(at(bootstrap), alone, check=check)
        shared = {k: v for k, v in together.items() if not needs_own_cluster(k)}
        alone_each = [{k: v} for k, v in together.items() if needs_own_cluster(k)]
        for some in filter(None, [shared, *alone_each]):
            with three_kafkas(has_static_voters=any(map(has_static_voters, some))) as listeners:
                well = record(at(listeners), some, check=check) and well
    except oracle.Unavailable as reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    return not well


if __name__ == "__main__":
    sys.exit(main())
