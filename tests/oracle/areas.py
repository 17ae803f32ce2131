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

#: What the names of areas of several nodes begin with.
CLUSTER = "three-"


def all_areas() -> dict[str, dict[str, Scenario]]:
    """Return the scenarios of each module in ``scenarios``, by their names: those of one node."""
    return _areas("scenarios")


def cluster_areas() -> dict[str, dict[str, Scenario]]:
    """Return those of three nodes (``layout``)."""
    return {f"{CLUSTER}{name}": found for name, found in _areas("cluster_scenarios").items()}


def needs_own_cluster(area: str) -> bool:
    """Tell whether the scenarios of an area leave a cluster that is of no use to others."""
    return _has(area, "OWN_CLUSTER") or has_static_voters(area)


def has_static_voters(area: str) -> bool:
    """Tell whether an area is about a quorum whose voters are in the nodes' configuration."""
    return _has(area, "STATIC_VOTERS")


def _has(area: str, mark: str) -> bool:
    name = area.removeprefix(CLUSTER).replace("-", "_")
    return hasattr(import_module(f"tests.oracle.cluster_scenarios.{name}"), mark)


def _areas(package: str) -> dict[str, dict[str, Scenario]]:
    folder = Path(__file__).parent / package
    names = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    return {
        name.replace("_", "-"): scenarios_in(import_module(f"tests.oracle.{package}.{name}"))
        for name in names
    }
