"""A cluster of real processes on this machine, for tests: nodes that can be killed and paused.

Each node is ``dohle start --config FILE`` with ports and a temporary folder of its own. A node that
is started again has the ports and the data that it had.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from dohle.cli.commands.storage_quorum import QuorumPlan
from dohle.cli.free_ports import free_ports
from dohle.cli.local_cluster import (
    LocalNode,
    VoterConfig,
    format_node,
    format_nodes,
    properties_of,
    write_properties,
)
from dohle.core.errors import KafkaError
from dohle.testing.asking import active_controller, run_apart, unfenced
from dohle.testing.node_process import NodeFailed, NodeProcess, dohle_command
from dohle.testing.properties import as_property

#: For whatever a test waits for: a machine may be busy.
TIMEOUT_S = 60.0

_HOST = "127.0.0.1"
_FIRST_CONTROLLER = 101
_LOOK_AGAIN_S = 0.05


class Cluster:
    """Several nodes that form one cluster.

    ``Cluster(nodes=3)`` has three nodes, 1 to 3, that are brokers and controllers at once;
    ``Cluster(brokers=3, controllers=3)`` has brokers 1 to 3 and controllers 101 to 103. ``config``
    holds Kafka's configs for all of them, and ``racks`` the ``broker.rack`` of each broker. With
    ``dynamic_voters`` the quorum's voters are in the metadata log, where they can be changed, and
    not in the configuration of the nodes. ::

        from dohle.client import Admin, Cluster as Client, NewTopic, run
        from dohle.testing import Cluster

        async def create(bootstrap: str, topic: str) -> None:
            async with Client(bootstrap) as client:
                (await Admin(client).create_topics([NewTopic(topic, partitions=3)])).ok()

        with Cluster(nodes=3) as cluster:
            run(create(cluster.bootstrap, "before"))
            cluster.kill(cluster.leader())
            run(create(cluster.bootstrap, "after"))
            cluster.restart(*cluster.stopped)
            cluster.wait_until_ready()

    Whatever takes longer than ``timeout_s``, or ends by itself, is a :class:`NodeFailed` with the
    end of the log of the node.
    """

    def __init__(
        self,
        nodes: int | None = None,
        *,
        brokers: int = 0,
        controllers: int = 0,
        config: Mapping[str, object] | None = None,
        racks: Sequence[str] | None = None,
        dynamic_voters: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if nodes is None and not (brokers or controllers):
            nodes = 3
        if nodes is not None and (brokers or controllers):
            raise ValueError("say nodes, or brokers and controllers: not both")
        if not (nodes or (brokers and controllers)):
            raise ValueError("a cluster needs at least one broker and one controller")
        if racks is not None and len(racks) != (nodes or brokers):
            raise ValueError(f"{len(racks)} racks for {nodes or brokers} brokers: say one for each")
        self._config = {name: as_property(value) for name, value in (config or {}).items()}
        self._voters = VoterConfig.DYNAMIC if dynamic_voters else VoterConfig.STATIC
        self._timeout_s = timeout_s
        self._folder = Path(tempfile.mkdtemp(prefix="dohle-cluster-"))
        self._nodes: dict[int, LocalNode] = {}
        self._processes: dict[int, NodeProcess] = {}
        for number in range(1, (nodes or brokers) + 1):
            self._add(number, is_broker=True, is_controller=bool(nodes))
        for number in range(_FIRST_CONTROLLER, _FIRST_CONTROLLER + controllers):
            self._add(number, is_broker=False, is_controller=True)
        self._first_nodes = tuple(self._nodes.values())
        self._racks = dict(zip(self.brokers, racks or (), strict=False))
        self.cluster_id = ""

    def _add(self, node_id: int, *, is_broker: bool, is_controller: bool) -> None:
        client, controller, metrics = (f"{_HOST}:{port}" for port in free_ports(3))
        folder = self._folder / str(node_id)
        folder.mkdir()
        self._nodes[node_id] = LocalNode(
            node_id,
            folder / "data",
            client if is_broker else None,
            controller if is_controller else None,
            metrics,
        )
        self._processes[node_id] = NodeProcess(
            node_id, dohle_command(self.config_file(node_id)), folder / "node.log"
        )

    # Its life

    def start(self) -> Self:
        """Start all nodes, and return when they are ready."""
        self.cluster_id = format_nodes(self._first_nodes, self._voters)
        for node in self._first_nodes:
            self._write_config(node)
        self.restart(*self._nodes)
        self.wait_until_ready()
        return self

    def _write_config(self, node: LocalNode) -> None:
        properties = properties_of(node, self._first_nodes, self._voters, self._config)
        if node.id in self._racks:
            properties["broker.rack"] = self._racks[node.id]
        write_properties(self.config_file(node.id), properties)

    def close(self) -> None:
        """End all nodes at once, and remove their data."""
        for process in self._processes.values():
            process.close()
        shutil.rmtree(self._folder, ignore_errors=True)

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

    # Who is there

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes."""
        return list(self._nodes)

    @property
    def brokers(self) -> list[int]:
        """The ids of the nodes that are brokers."""
        return [node.id for node in self._nodes.values() if node.client is not None]

    @property
    def controllers(self) -> list[int]:
        """The ids of the nodes that are controllers."""
        return [node.id for node in self._nodes.values() if node.controller is not None]

    @property
    def serving(self) -> list[int]:
        """The ids of the nodes that run and are not paused."""
        return [
            each.id for each in self._processes.values() if each.is_running and not each.is_paused
        ]

    @property
    def stopped(self) -> list[int]:
        """The ids of the nodes that do not run."""
        return [each.id for each in self._processes.values() if not each.is_running]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for clients."""
        return ",".join(node.client for node in self._nodes.values() if node.client is not None)

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of all controllers, for tools (``--bootstrap-controller``)."""
        return ",".join(node.controller for node in self._nodes.values() if node.controller)

    def address(self, node: int) -> str:
        """Return where clients connect to a broker, or tools to a controller."""
        return self._node(node).client or str(self._node(node).controller)

    def data(self, node: int) -> Path:
        """Return the data directory of a node."""
        return self._node(node).data

    def config_file(self, node: int) -> Path:
        """Return the configuration of a node; it is read when the node starts."""
        return self._folder / str(self._node(node).id) / "server.properties"

    def metrics(self, node: int) -> str:
        """Return where a node serves its metrics, as ``host:port``."""
        return self._node(node).metrics

    def pid(self, node: int) -> int:
        """Return the process of a node that runs."""
        return self._process(node).pid

    def log(self, node: int) -> str:
        """Return all that a node has logged."""
        return self._process(node).log

    def _node(self, node: int) -> LocalNode:
        try:
            return self._nodes[node]
        except KeyError:
            known = ", ".join(map(str, self._nodes))
            raise ValueError(f"there is no node {node}: the nodes are {known}") from None

    def _process(self, node: int) -> NodeProcess:
        return self._processes[self._node(node).id]

    # What happens to nodes

    def kill(self, *nodes: int) -> None:
        """End nodes with SIGKILL."""
        for node in nodes:
            self._process(node).kill()

    def pause(self, *nodes: int) -> None:
        """Stop nodes in the middle of whatever they do (SIGSTOP): others wait for them in vain."""
        for node in nodes:
            self._process(node).pause()

    def resume(self, *nodes: int) -> None:
        """Let nodes that are paused go on."""
        for node in nodes:
            self._process(node).resume()

    def stop(self, *nodes: int) -> None:
        """Ask nodes to stop in good order, and wait until they have: brokers, then the others.

        A broker asks its controllers whether it may stop, and waits long for one that can answer.
        """
        brokers = set(self.brokers).intersection(nodes)
        for group in (sorted(brokers), sorted(set(nodes) - brokers)):
            for node in group:
                self._process(node).signal(signal.SIGTERM)
            deadline_s = monotonic() + self._timeout_s
            for node in group:
                self._process(node).await_clean_end(deadline_s)

    def restart(self, *nodes: int) -> None:
        """Stop those of the nodes that run, start all of them, and wait until they serve.

        That takes a majority of the controllers: start them together.
        """
        self.stop(*(node for node in nodes if self._process(node).is_running))
        for node in nodes:
            self._process(node).spawn()
        deadline_s = monotonic() + self._timeout_s
        for node in nodes:
            self._process(node).await_start(deadline_s)

    def add_controller(self) -> int:
        """Start one more controller, which does not vote before it is told to; return its id.

        The voters must be in the metadata log (``dynamic_voters``).
        """
        if self._voters is VoterConfig.STATIC:
            raise ValueError("only a cluster with dynamic_voters can have more controllers")
        node_id = max(max(self._nodes) + 1, _FIRST_CONTROLLER)
        self._add(node_id, is_broker=False, is_controller=True)
        format_node(self._nodes[node_id], self.cluster_id, QuorumPlan(is_dynamic=True))
        self._write_config(self._nodes[node_id])
        self.restart(node_id)
        return node_id

    # What it is like

    def leader(self) -> int:
        """Return the id of the active controller, as soon as there is one that runs."""
        return self._until("no controller is active", self._find_leader)

    def wait_until_ready(self) -> None:
        """Wait until every node that runs has its part in the cluster.

        Brokers are not fenced, as all of them see it, and a controller that runs is active.
        """
        self._until("the cluster is not ready", self._is_ready)

    def _until(self, problem: str, look: Callable[[], int | None]) -> int:
        deadline_s = monotonic() + self._timeout_s
        while True:
            found = look()
            if found is not None:
                return found
            if monotonic() > deadline_s:
                tails = "".join(
                    f"\nnode {each}'s log ends with:\n{self._processes[each].tail}"
                    for each in self._nodes
                )
                raise NodeFailed(f"{problem} after {self._timeout_s:g} s{tails}")
            sleep(_LOOK_AGAIN_S)

    def _find_leader(self) -> int | None:
        serving = set(self.serving)
        for broker in self.brokers:
            if broker in serving:
                with suppress(KafkaError):
                    leader: int = run_apart(active_controller(self.address(broker)))
                    if leader in serving:
                        return leader
        return None

    def _is_ready(self) -> int | None:
        serving = set(self.serving)
        brokers = sorted(serving.intersection(self.brokers))
        leaders = set()
        for broker in brokers:
            try:
                seen = run_apart(unfenced(self.address(broker)))
                leaders.add(run_apart(active_controller(self.address(broker))))
            except KafkaError:
                return None
            if not seen.issuperset(brokers):
                return None
        return leaders.pop() if len(leaders) == 1 and leaders <= serving else None
