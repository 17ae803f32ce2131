"""The parts, and the turns of one cluster at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeAlias, cast

from tests.jvm.jvm import Jvm

from bench.cluster.nodes import Cluster, dohle, kafka
from bench.processes import folder
from bench.versus import taking_turns
from bench.versus.figures import DOHLE

#: The parts, by letters.
PARTS = {
    "a": "librdkafka",
    "b": "replay",
    "c": "latency",
    "d": "partitions",
    "e": "transactions",
    "f": "catch_up",
    "g": "failover",
    "h": "footprint",
    "i": "quorum",
}

Turn: TypeAlias = taking_turns.Turn[Cluster]
Part: TypeAlias = taking_turns.Part[Cluster]


def find_part(name: str) -> Part:
    """Return the part of this name."""
    return cast("Part", import_module(f"bench.cluster.{name}"))


@dataclass(frozen=True, slots=True)
class Stand:
    """The jars, and the JVM that formats data directories; clients are not written in Java."""

    classpath: str
    formatter: Jvm
    clients: Jvm | None = None

    def server(self, name: str, part: Part) -> AbstractContextManager[Cluster]:
        """Start a cluster for a part."""
        if name == DOHLE:
            return dohle(part.SETTINGS)
        return kafka(self.classpath, self.formatter, part.SETTINGS)


@contextmanager
def stand(classpath: str) -> Iterator[Stand]:
    """Start what the turns need."""
    with folder() as path, Jvm(classpath, Path(path)) as formatter:
        yield Stand(classpath, formatter)
