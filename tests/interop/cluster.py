"""Several nodes, each broker and controller, in processes of their own."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dohle.cli.main import main
from tests.interop.process import BrokerProcess
from tests.interop.waiting import wait_until
from tests.ports import free_ports

CLUSTER_ID = "the-cluster-of-a-test0"
#: A broker that is silent is given up after 9 s; the machine may have other things to do.
FAILOVER_S = 90.0


class ClusterProcesses:
    """Nodes 1 to ``count`` of one cluster."""

    def __init__(self, folder: Path, count: int = 3, **configs: str) -> None:
        """Format all; in names of settings an underscore stands for a dot."""
        ids = range(1, count + 1)
        ports = dict(zip(ids, free_ports(count), strict=True))
        controllers = dict(zip(ids, free_ports(count), strict=True))
        voters = ",".join(f"{id}@127.0.0.1:{port}" for id, port in controllers.items())
        self.nodes: dict[int, BrokerProcess] = {}
        for id in ids:
            own = folder / str(id)
            own.mkdir()
            clients = f"PLAINTEXT://127.0.0.1:{ports[id]}"
            properties = {
                "process.roles": "broker,controller",
                "node.id": str(id),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{clients},CONTROLLER://127.0.0.1:{controllers[id]}",
                "log.dirs": str(own / "data"),
                **{name.replace("_", "."): value for name, value in configs.items()},
            }
            file = own / "server.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            assert main(["storage", "format", "-c", str(file), "-t", CLUSTER_ID]) == 0
            self.nodes[id] = BrokerProcess(own, properties, port=ports[id])
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self) -> Self:
        """Start all, and wait until all serve: one alone would wait for the others."""
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.await_start()
        return self

    def create_topic(self, name: str, partitions: int, **configs: str) -> None:
        """Create a topic with a replica on each node."""
        topic = NewTopic(
            name,
            partitions,
            len(self.nodes),
            config={key.replace("_", "."): value for key, value in configs.items()},
        )
        self._admin.create_topics([topic])[name].result()

    def partitions(self, topic: str) -> dict[int, Any]:
        """Return what clients are told of a topic's partitions."""
        found: dict[int, Any] = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
        return found

    def await_in_sync(self, topic: str) -> None:
        """Wait until all replicas are in the ISR."""
        wait_until(
            lambda: all(
                len(each.isrs) == len(self.nodes) for each in self.partitions(topic).values()
            ),
            FAILOVER_S,
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            node.__exit__(kind, error, trace)
