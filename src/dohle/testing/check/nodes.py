"""Three nodes, each broker and controller, behind links and disks that can fail.

Nodes are of dohle or of Apache Kafka, and have the same configs but for what only one of them
knows. Of Kafka this knows no more than its classes: ``java`` runs them from the folder with its
jars (``libs`` of its download).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import monotonic, sleep

from dohle.cli.commands.storage_quorum import QuorumPlan
from dohle.cli.free_ports import free_ports
from dohle.cli.local_cluster import LocalNode, format_node, write_properties
from dohle.core.errors import KafkaError
from dohle.core.seams import system_rng
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.testing.asking import active_controller, run_apart, unfenced
from dohle.testing.check.disks import Disks
from dohle.testing.check.links import Links
from dohle.testing.check.socket_owner import owner_of
from dohle.testing.node_process import NodeFailed, NodeProcess, dohle_command

START_S_MAX = 180.0
_STOP_S_MAX = 20.0
_FORMAT_S_MAX = 120.0
_LOOK_AGAIN_S = 0.2
_HOST = "127.0.0.1"
_JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")
#: Features that Kafka finalizes by itself and dohle does not have.
_NOT_OURS = ("share.version", "streams.version")

#: Quick to notice that a node is gone, and to end what clients have left open.
CONFIG = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "default.replication.factor": "3",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


class Maker(Enum):
    """Whose a node is."""

    DOHLE = "dohle"
    KAFKA = "kafka"


#: What kinds of clusters there are.
CLUSTERS = {
    "dohle": (Maker.DOHLE,) * 3,
    "kafka": (Maker.KAFKA,) * 3,
    "mixed": (Maker.DOHLE, Maker.KAFKA, Maker.DOHLE),
}


@dataclass(frozen=True, slots=True)
class _Ports:
    """Where a node listens, and the proxies where others find it: clients, brokers, controllers."""

    own: tuple[int, int, int]
    seen: tuple[int, int, int]


class Nodes:
    """The nodes of one cluster, by their ids: 1, 2, 3."""

    def __init__(
        self, makers: Sequence[Maker], folder: Path, logs: Path, libs: Path | None
    ) -> None:
        self._folder = folder
        self._libs = libs
        self.makers = dict(enumerate(makers, 1))
        self.disks = Disks()
        #: Why disks cannot be full, if they cannot.
        self.no_disks = ""
        self.links = Links(self._owner)
        self._processes: dict[int, NodeProcess] = {}
        self._ports = {node: self._find_ports(node) for node in self.makers}
        for node, maker in self.makers.items():
            self._processes[node] = NodeProcess(
                node, self._command(maker, self._config_file(node)), logs / f"node-{node}.log"
            )
        #: For clients.
        self.bootstrap = ",".join(f"{_HOST}:{ports.seen[0]}" for ports in self._ports.values())

    def _find_ports(self, node: int) -> _Ports:
        own = clients, brokers, controllers = free_ports(3)
        seen = (
            self.links.add(node, clients, is_for_clients=True),
            self.links.add(node, brokers, is_for_clients=False),
            self.links.add(node, controllers, is_for_clients=False),
        )
        return _Ports((own[0], own[1], own[2]), seen)

    def _owner(self, port: int) -> int | None:
        pids = {node: each.pid for node, each in self._processes.items() if each.is_running}
        return owner_of(port, pids)

    # Their life

    def start(self, *, with_disks: bool) -> None:
        """Format and start all, and wait until they are ready."""
        cluster_id = uuid_to_text(random_uuid(system_rng()))
        for node in self.makers:
            if with_disks and not self.no_disks:
                self.no_disks = self.disks.mount(self.disk(node))
            write_properties(self._config_file(node), self._properties(node))
        for node, maker in self.makers.items():
            self._format(node, maker, cluster_id)
        for process in self._processes.values():
            process.spawn()
        self.wait_until_ready()

    def _format(self, node: int, maker: Maker, cluster_id: str) -> None:
        if maker is Maker.DOHLE:
            local = LocalNode(node, self._data(node), "", "", "")
            format_node(local, cluster_id, QuorumPlan(is_dynamic=False))
            return
        levels = [word for feature in _NOT_OURS for word in ("--feature", f"{feature}=0")]
        done = subprocess.run(
            [
                *(*_JAVA, "-cp", f"{self._libs}/*", "kafka.tools.StorageTool", "format"),
                *("-t", cluster_id, "-c", str(self._config_file(node)), *levels),
            ],
            capture_output=True,
            text=True,
            timeout=_FORMAT_S_MAX,
            check=False,
        )
        if done.returncode:
            raise NodeFailed(f"node {node} could not be formatted:\n{done.stdout}{done.stderr}")

    def _command(self, maker: Maker, config: Path) -> list[str]:
        if maker is Maker.DOHLE:
            return dohle_command(config)
        return [*_JAVA, "-cp", f"{self._libs}/*", "kafka.Kafka", str(config)]

    def _properties(self, node: int) -> dict[str, str]:
        names = ("CLIENTS", "BROKERS", "CONTROLLERS")
        ports = self._ports[node]
        found = {
            **CONFIG,
            "process.roles": "broker,controller",
            "node.id": str(node),
            "listeners": _addresses(names, ports.own),
            "advertised.listeners": _addresses(names, ports.seen),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": "BROKERS",
            "controller.listener.names": "CONTROLLERS",
            "controller.quorum.voters": ",".join(
                f"{each}@{_HOST}:{seen.seen[2]}" for each, seen in self._ports.items()
            ),
            "log.dirs": str(self._data(node)),
        }
        if self.makers[node] is Maker.DOHLE:
            found["metrics.listener"] = ""
        return found

    def _config_file(self, node: int) -> Path:
        return self._folder / f"{node}.properties"

    def disk(self, node: int) -> Path:
        """Return where the disk of a node is, which has its data."""
        return self._folder / str(node)

    def _data(self, node: int) -> Path:
        return self.disk(node) / "data"

    def close(self) -> None:
        """End all at once, and let go of ports and disks."""
        for process in self._processes.values():
            process.close()
        self.links.close()
        self.disks.close()

    # What happens to them

    @property
    def running(self) -> list[int]:
        """Those that have a process, even if it is paused."""
        return [node for node, process in self._processes.items() if process.is_running]

    def kill(self, node: int) -> None:
        """End it with SIGKILL."""
        self._processes[node].kill()

    def pause(self, node: int) -> None:
        """Let it stand still (SIGSTOP), unless it has ended."""
        if self._processes[node].is_running:
            self._processes[node].pause()

    def resume(self, node: int) -> None:
        """Let it go on, if it is still there."""
        if self._processes[node].is_running:
            self._processes[node].resume()

    def stop(self, node: int) -> bool:
        """Ask it to stop; return whether it did so in time. If not, it is killed."""
        process = self._processes[node]
        if not process.is_running:
            return True
        process.signal(signal.SIGTERM)
        try:
            process.await_end(monotonic() + _STOP_S_MAX)
        except NodeFailed:
            process.kill()
            return False
        return True

    def spawn(self, node: int) -> None:
        """Start it again if it does not run, without waiting for it to serve."""
        if not self._processes[node].is_running:
            self._processes[node].spawn()

    def tail(self, node: int) -> str:
        """Return the end of its log."""
        return self._processes[node].tail

    def log(self, node: int) -> str:
        """Return all that it has logged."""
        return self._processes[node].log

    # What they are like

    def active_controller(self) -> int | None:
        """Return who leads the quorum, if anybody can tell."""
        for node in self.running:
            try:
                return run_apart(active_controller(self._address(node)))
            except (KafkaError, OSError):
                continue
        return None

    def wait_until_ready(self, timeout_s: float = START_S_MAX) -> None:
        """Wait until every node sees all brokers, and there is a controller."""
        deadline_s = monotonic() + timeout_s
        while not self._is_ready():
            ended = [node for node in self.makers if node not in self.running]
            if ended or monotonic() > deadline_s:
                what = f"nodes {ended} have ended" if ended else f"after {timeout_s:g} s"
                tails = "".join(f"\nnode {each}:\n{self.tail(each)}" for each in self.makers)
                raise NodeFailed(f"the cluster is not ready: {what}{tails}")
            sleep(_LOOK_AGAIN_S)

    def _is_ready(self) -> bool:
        try:
            for node in self.makers:
                if run_apart(unfenced(self._address(node))) != set(self.makers):
                    return False
        except (KafkaError, OSError):
            return False
        return self.active_controller() in self.makers

    def _address(self, node: int) -> str:
        return f"{_HOST}:{self._ports[node].own[0]}"


def _addresses(names: Sequence[str], ports: Sequence[int]) -> str:
    return ",".join(f"{name}://{_HOST}:{port}" for name, port in zip(names, ports, strict=True))
