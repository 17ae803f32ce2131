"""Clusters whose nodes are of both kinds: Apache Kafka's and dohle's, on one machine.

A node has one ``server.properties`` and one set of directories, whichever kind runs on it, so that
it may be stopped as one and started as the other.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from dohle.cli.main import main
from dohle.testing.node_process import NodeProcess, dohle_command
from tests.interop.quick_broker import QUICK
from tests.jvm.apache_kafka import KafkaProcess, format_as_kafka_does
from tests.jvm.jvm import Jvm
from tests.mixed.complaints import complaints_in
from tests.ports import free_ports

CLUSTER_ID = "bWl4ZWQtY2x1c3Rlci0wMQ"
#: Long, for a busy machine.
DEADLINE_S = 90.0

CONFIG = {
    **QUICK,
    # Quick to notice that a broker is gone.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Leaders move when a test says so, and when their broker is gone.
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # So few that nodes which come late begin with a snapshot, of whoever leads then.
    "metadata.log.max.record.bytes.between.snapshots": "10000",
    "metadata.max.retention.bytes": "1000",
    # dohle's own; Kafka does not read it. All nodes would have the same port.
    "metrics.listener": "",
}

#: For clusters that have no third broker.
TWO_BROKERS = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}


class Kind(Enum):
    """Whose program a node runs."""

    KAFKA = "kafka"
    DOHLE = "dohle"

    @property
    def other(self) -> Kind:
        return Kind.DOHLE if self is Kind.KAFKA else Kind.KAFKA


class Node:
    """One node: a file, directories, and a process of one kind or the other."""

    def __init__(self, node_id: int, kind: Kind, folder: Path, classpath: str) -> None:
        self.id = node_id
        self.kind = kind
        self.file = folder / "server.properties"
        #: The metadata log is in the first.
        self.directories = [folder / "data-1", folder / "data-2"]
        self.client, self.controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.is_broker = self.is_controller = False
        self._dohle = NodeProcess(node_id, dohle_command(self.file), folder / "dohle.log")
        self._kafka = KafkaProcess(classpath, self.file, folder / "kafka.log")
        self._seen = dict.fromkeys(Kind, 0)

    def write_file(self, quorum: Mapping[str, str], config: Mapping[str, str]) -> None:
        """Write the configuration, as either kind reads it."""
        listeners = {
            "PLAINTEXT": self.client if self.is_broker else None,
            "CONTROLLER": self.controller if self.is_controller else None,
        }
        roles = {"broker": self.is_broker, "controller": self.is_controller}
        properties = {
            "process.roles": ",".join(role for role, has in roles.items() if has),
            "node.id": str(self.id),
            "listeners": ",".join(f"{name}://{at}" for name, at in listeners.items() if at),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": ",".join(map(str, self.directories)),
            "metadata.log.dir": str(self.directories[0]),
            "broker.rack": f"rack-{self.id}",
            **quorum,
            **config,
        }
        self.file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def format(self, jvm: Jvm, *voters: str) -> None:
        """Give its directories their identity, by the tool of its kind."""
        if self.kind is Kind.KAFKA:
            format_as_kafka_does(jvm, self.file, CLUSTER_ID, *voters)
        else:
            command = ["storage", "format", "-c", str(self.file), "-t", CLUSTER_ID]
            assert main([*command, *voters]) == 0

    def spawn(self) -> None:
        """Start its process, without waiting for it to serve."""
        if self.kind is Kind.KAFKA:
            self._kafka.spawn()
        else:
            self._dohle.spawn()

    def await_start(self) -> None:
        """Wait until it serves."""
        if self.kind is Kind.KAFKA:
            self._kafka.await_start()
        else:
            self._dohle.await_start(monotonic() + DEADLINE_S)

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.spawn()
        self.await_start()

    @property
    def is_running(self) -> bool:
        return self._kafka.is_running or self._dohle.is_running

    def stop(self) -> None:
        """Ask it to stop, and wait until it has."""
        if self.kind is Kind.KAFKA:
            self._kafka.stop()
        else:
            self._dohle.signal(signal.SIGTERM)
            self._dohle.await_clean_end(monotonic() + DEADLINE_S)

    def kill(self) -> None:
        """End it with -9."""
        if self.kind is Kind.KAFKA:
            self._kafka.kill()
        else:
            self._dohle.kill()

    def become(self, kind: Kind) -> None:
        """Go on as the other kind, with the same file and directories; it is to be started."""
        assert not self.is_running
        self.kind = kind

    def close(self) -> None:
        self._dohle.close()
        if self._kafka.is_running:
            self._kafka.kill()

    def new_complaints(self) -> list[str]:
        """Return what it has logged since this was asked last, and should not have."""
        found = []
        for kind, log in ((Kind.KAFKA, self._kafka.log), (Kind.DOHLE, self._dohle.log)):
            found += [f"node {self.id}: {line}" for line in complaints_in(log[self._seen[kind] :])]
            self._seen[kind] = len(log)
        return found

    def partition_folder(self, name: str) -> Path | None:
        """Return where it keeps a partition, if it does."""
        found = (directory / name for directory in self.directories)
        return next((folder for folder in found if folder.exists()), None)


class MixedCluster:
    """Nodes by their ids; one that is among brokers and controllers is both at once.

    With ``is_dynamic`` the voters of the quorum are in the metadata log: the first controller alone
    at first, others can be added. Those that come ``later`` are known to all by their addresses:
    who has read the log knows its voters, but who has lost the leader asks these servers only.
    """

    def __init__(
        self,
        jvm: Jvm,
        classpath: str,
        folder: Path,
        *,
        brokers: Mapping[int, Kind],
        controllers: Mapping[int, Kind],
        is_dynamic: bool = False,
        later: Mapping[int, Kind] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.nodes: dict[int, Node] = {}
        self._later: dict[int, Node] = {}
        self.is_dynamic = is_dynamic
        self.classpath = classpath
        self._jvm, self._folder = jvm, folder
        self._config = {**CONFIG, **(config or {})}
        for node_id, kind in {**controllers, **brokers}.items():
            node = self.nodes[node_id] = self._make(node_id, kind)
            node.is_broker, node.is_controller = node_id in brokers, node_id in controllers
        for node_id, kind in (later or {}).items():
            node = self._later[node_id] = self._make(node_id, kind)
            node.is_controller = True
        for node in (*self.nodes.values(), *self._later.values()):
            node.write_file(self._quorum, self._config)

    def _make(self, node_id: int, kind: Kind) -> Node:
        folder = self._folder / str(node_id)
        folder.mkdir(parents=True)
        return Node(node_id, kind, folder, self.classpath)

    @property
    def _quorum(self) -> dict[str, str]:
        if self.is_dynamic:
            servers = ",".join(
                node.controller for node in (*self.controllers, *self._later.values())
            )
            return {"controller.quorum.bootstrap.servers": servers}
        voters = ",".join(f"{each.id}@{each.controller}" for each in self.controllers)
        return {"controller.quorum.voters": voters}

    def start(self) -> Self:
        """Format all nodes, start them, and wait until they serve."""
        first = self.controllers[0]
        for node in self.nodes.values():
            voters = ["--standalone" if node is first else "--no-initial-controllers"]
            node.format(self._jvm, *(voters if self.is_dynamic else []))
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.await_start()
        return self

    def prepare(self, node_id: int, *, is_broker: bool = False) -> Node:
        """Take in a node that comes now; it is to be formatted and started."""
        node = self.nodes[node_id] = self._later.pop(node_id)
        node.is_broker = is_broker
        node.write_file(self._quorum, self._config)
        return node

    def add(self, node_id: int) -> Node:
        """Start a controller that comes now; it does not vote yet."""
        node = self.prepare(node_id)
        node.format(self._jvm, "--no-initial-controllers")
        node.start()
        return node

    def remove(self, node: Node) -> None:
        """Forget a node that does not run."""
        assert not node.is_running
        complaints = node.new_complaints()
        assert not complaints, "\n".join(complaints)
        del self.nodes[node.id]

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_controller]

    def broker_of(self, kind: Kind) -> Node:
        """Return the first broker of a kind."""
        return next(node for node in self.brokers if node.kind is kind)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.client for node in self.brokers)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
