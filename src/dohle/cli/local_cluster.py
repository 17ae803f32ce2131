"""Nodes of one cluster on one machine: their configuration, and their first formatting.

Each node gets ports and a data directory of its own; all know each other as voters. ``dohle start
--nodes`` and ``dohle.testing.Cluster`` run them, each node as a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from dohle.cli.commands.storage_format import Formatter, beginning
from dohle.cli.commands.storage_quorum import QuorumPlan
from dohle.cli.errors import CliError
from dohle.core.ids import BrokerId, Uuid
from dohle.core.seams import SystemClock, system_rng
from dohle.core.uuid import random_uuid, uuid_to_text
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.storage.directory.java_properties import format_properties
from dohle.storage.directory.meta_properties import MetaPropertiesEnsemble, load_ensemble
from dohle.storage.files import OsFileSystem

#: As Kafka has it by default, if there are so many nodes.
INTERNAL_TOPICS_REPLICATION = 3

_CONTROLLER_LISTENER = "CONTROLLER"


class VoterConfig(Enum):
    """Where the voters of the quorum are written down."""

    #: In the configuration of every node, for ever (``kraft.version`` 0).
    STATIC = "static"
    #: In the metadata log, where they can be changed (``kraft.version`` 1, KIP-853).
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node of a cluster whose nodes are all on this machine."""

    id: int
    data: Path
    #: Where clients connect, as ``host:port``, if it is a broker.
    client: str | None
    #: Where other nodes connect, if it is a controller.
    controller: str | None
    metrics: str

    @property
    def roles(self) -> str:
        """What it is: ``process.roles``."""
        named = {"broker": self.client, "controller": self.controller}
        return ",".join(role for role, address in named.items() if address is not None)


def properties_of(
    node: LocalNode, nodes: Sequence[LocalNode], voters: VoterConfig, more: Mapping[str, str]
) -> dict[str, str]:
    """Return the configuration of one of the nodes; ``more`` overrides the rest."""
    controllers = [each for each in nodes if each.controller is not None]
    listeners = {"PLAINTEXT": node.client, _CONTROLLER_LISTENER: node.controller}
    if voters is VoterConfig.STATIC:
        named = ",".join(f"{each.id}@{each.controller}" for each in controllers)
        quorum = {"controller.quorum.voters": named}
    else:
        servers = ",".join(str(each.controller) for each in controllers)
        quorum = {"controller.quorum.bootstrap.servers": servers}
    brokers = sum(each.client is not None for each in nodes)
    replication = min(INTERNAL_TOPICS_REPLICATION, brokers)
    return {
        "process.roles": node.roles,
        "node.id": str(node.id),
        "listeners": ",".join(f"{name}://{at}" for name, at in listeners.items() if at),
        "controller.listener.names": _CONTROLLER_LISTENER,
        **quorum,
        "log.dirs": str(node.data),
        "metrics.listener": node.metrics,
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        # One of three may be away.
        "transaction.state.log.min.isr": str(min(2, replication)),
        **more,
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a ``server.properties``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(format_properties(properties, SystemClock().now_ms()))


def format_nodes(nodes: Sequence[LocalNode], voters: VoterConfig = VoterConfig.STATIC) -> str:
    """Format the directories that are new as one cluster, and return its id."""
    found = {node.id: _identity(node) for node in nodes}
    ids = {each.cluster_id for each in found.values() if each.cluster_id is not None}
    if len(ids) > 1:
        raise CliError(
            f"the directories are of several clusters ({', '.join(sorted(ids))}): choose another "
            "folder with --data"
        )
    rng = system_rng()
    cluster_id = ids.pop() if ids else uuid_to_text(random_uuid(rng))
    initial: tuple[Voter, ...] = ()
    if voters is VoterConfig.DYNAMIC:
        initial = tuple(_voter(node, random_uuid(rng)) for node in nodes if node.controller)
    for node in nodes:
        if found[node.id].empty_dirs:
            format_node(node, cluster_id, QuorumPlan(voters is VoterConfig.DYNAMIC, initial))
    return cluster_id


def format_node(node: LocalNode, cluster_id: str, plan: QuorumPlan) -> None:
    """Format the directory of one node."""
    begin = beginning(None, [], plan)
    formatter = Formatter(OsFileSystem(), cluster_id, BrokerId(node.id), begin)
    formatter.format(str(node.data), has_metadata=True)


def _identity(node: LocalNode) -> MetaPropertiesEnsemble:
    found = load_ensemble(OsFileSystem(), [str(node.data)])
    for error in found.failed_dirs.values():
        raise CliError(str(error))
    if found.node_id not in (None, node.id):
        raise CliError(f"{node.data} has the data of node {found.node_id}, not of node {node.id}")
    return found


def _voter(node: LocalNode, directory_id: Uuid) -> Voter:
    host, _, port = str(node.controller).rpartition(":")
    return Voter(
        BrokerId(node.id), directory_id, (VoterEndpoint(_CONTROLLER_LISTENER, host, int(port)),)
    )
