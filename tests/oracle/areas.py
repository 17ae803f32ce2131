"""Which scenarios there are, and how the brokers are set that run them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.oracle.scenario import Scenario, scenarios_in

#: Said to both brokers.
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    # The records of the scenarios are years old: nobody shall look at them while they run.
    "log.initial.task.delay.ms": "3600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def all_areas() -> dict[str, dict[str, Scenario]]:
    """Return the scenarios of each module in ``scenarios``, by their names."""
    folder = Path(__file__).parent / "scenarios"
    names = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return {
        name.replace("_", "-"): scenarios_in(import_module(f"tests.oracle.scenarios.{name}"))
        for name in names
    }
