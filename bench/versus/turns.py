"""The parts, and the turns of one server at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeAlias, cast

from tests.jvm.jvm import Jvm

from bench.processes import folder
from bench.versus import taking_turns
from bench.versus.figures import DOHLE
from bench.versus.servers import PERFORMANCE_OPTIONS, Server, dohle, kafka

#: The parts, by the letters of what they answer.
PARTS = {
    "a": "librdkafka",
    "b": "java_tools",
    "c": "replay",
    "d": "latency",
    "e": "partitions",
    "f": "connections",
    "g": "coordinators",
    "h": "footprint",
    "i": "cleaner",
    "j": "quorum",
}

Turn: TypeAlias = taking_turns.Turn[Server]
Part: TypeAlias = taking_turns.Part[Server]

#: The options of kafka-producer-perf-test and its like; they undo those for short-lived tools.
_CLIENT_OPTIONS = (
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    *PERFORMANCE_OPTIONS,
    "-Xmx512M",
)


def find_part(name: str) -> Part:
    """Return the part of this name."""
    return cast("Part", import_module(f"bench.versus.{name}"))


@dataclass(frozen=True, slots=True)
class Stand:
    """The jars, and the JVMs that outlive the servers."""

    classpath: str
    formatter: Jvm
    clients: Jvm

    def server(self, name: str, part: Part) -> AbstractContextManager[Server]:
        """Start a server for a part."""
        if name == DOHLE:
            return dohle(part.SETTINGS)
        return kafka(self.classpath, self.formatter, part.SETTINGS)


@contextmanager
def stand(classpath: str) -> Iterator[Stand]:
    """Start what the turns need."""
    with (
        folder() as path,
        Jvm(classpath, Path(path)) as formatter,
        Jvm(classpath, Path(path), _CLIENT_OPTIONS) as clients,
    ):
        yield Stand(classpath, formatter, clients)
