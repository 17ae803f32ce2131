"""Three nodes, brokers and controllers at once, with the same configs on both sides.

They are started as single servers are (``bench.versus.servers``), each with a heap of 1 GB if it is
Kafka's, and an empty data directory of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.jvm.apache_kafka import format_storage
from tests.jvm.jvm import Jvm
from tests.ports import free_ports

from bench.processes import Measured, Watched, folder
from bench.versus.figures import DOHLE, KAFKA
from bench.versus.servers import SAME, Server, kafka_command
from dohle.cli.local_cluster import (
    LocalNode,
    VoterConfig,
    format_nodes,
    properties_of,
    write_properties,
)

NODES = (1, 2, 3)
_CLUSTER_ID = "benchmark-of-a-cluster"
#: Only dohle knows it, and measures nothing there.
_NOT_BOTH = "metrics.listener"
_PROTOCOLS = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}

Command = Callable[[Path, Path], list[str]]


class Cluster(Watched):
    """Nodes that form one cluster, by their ids."""

    def __init__(self, name: str, nodes: Mapping[int, Server]) -> None:
        self.name = name
        self.nodes = nodes
        #: The addresses of all, for clients.
        self.address = ",".join(node.address for node in nodes.values())

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_s_of_nodes.values())

    @property
    def cpu_s_of_nodes(self) -> dict[int, float]:
        """The processor time of each node so far; all must be running."""
        return {number: node.cpu_s for number, node in self.nodes.items()}

    @property
    def processes(self) -> Mapping[str, Measured]:
        return {f"node {number}": node for number, node in self.nodes.items()}

    def start(self) -> None:
        """Start all: none serves before a majority of them runs."""
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.await_answer()

    def restart(self, number: int) -> None:
        """Start a node that has ended, and wait until it answers."""
        self.nodes[number].spawn()
        self.nodes[number].await_answer()

    def stop(self) -> None:
        """End all at once."""
        for node in self.nodes.values():
            node.stop()


@contextmanager
def dohle(settings: Mapping[str, str], python: str = sys.executable) -> Iterator[Cluster]:
    """Run nodes of the dohle that this Python has."""

    def command(path: Path, properties: Path) -> list[str]:
        return [python, "-m", "dohle", "start", "--config", str(properties)]

    with folder() as path:
        nodes = _plan(Path(path))
        properties = _write(nodes, settings)
        format_nodes(list(nodes.values()))
        with _running(DOHLE, nodes, properties, command) as cluster:
            yield cluster


@contextmanager
def kafka(classpath: str, formatter: Jvm, settings: Mapping[str, str]) -> Iterator[Cluster]:
    """Run nodes of Apache Kafka."""

    def command(path: Path, properties: Path) -> list[str]:
        return kafka_command(classpath, path, properties)

    with folder() as path:
        nodes = _plan(Path(path))
        properties = _write(nodes, settings)
        for each in properties.values():
            format_storage(formatter, each, _CLUSTER_ID)
        with _running(KAFKA, nodes, properties, command) as cluster:
            yield cluster


def _plan(path: Path) -> dict[int, LocalNode]:
    ports = iter(free_ports(2 * len(NODES)))
    return {
        number: LocalNode(
            number,
            path / str(number) / "data",
            f"127.0.0.1:{next(ports)}",
            f"127.0.0.1:{next(ports)}",
            metrics="",
        )
        for number in NODES
    }


def _write(nodes: Mapping[int, LocalNode], settings: Mapping[str, str]) -> dict[int, Path]:
    found = {}
    more = {**_PROTOCOLS, **SAME, **settings}
    for number, node in nodes.items():
        properties = properties_of(node, list(nodes.values()), VoterConfig.STATIC, more)
        del properties[_NOT_BOTH]
        found[number] = node.data.parent / "server.properties"
        write_properties(found[number], properties)
    return found


@contextmanager
def _running(
    name: str, nodes: Mapping[int, LocalNode], properties: Mapping[int, Path], command: Command
) -> Iterator[Cluster]:
    servers = {}
    for number, node in nodes.items():
        path = node.data.parent
        words = command(path, properties[number])
        servers[number] = Server(name, words, str(node.client), path)
    cluster = Cluster(name, servers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
