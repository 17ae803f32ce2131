"""Who votes in a quorum whose voters are in the metadata log, by the tools of both kinds."""

from __future__ import annotations

from dohle.cli.main import main
from tests.interop.waiting import wait_until
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools, directory_id
from tests.mixed.administration import Operator
from tests.mixed.nodes import DEADLINE_S, Kind, MixedCluster, Node

_COMMAND = "org.apache.kafka.tools.MetadataQuorumCommand"


class Membership:
    """Lets controllers vote, and not vote any more, by the tools of both kinds."""

    def __init__(self, cluster: MixedCluster, jvm: Jvm) -> None:
        self._cluster = cluster
        self._tools = Tools(jvm, cluster.bootstrap)

    def add(self, node_id: int) -> None:
        """Start a controller, and let it vote as soon as it has read the log."""
        self.let_vote(self._cluster.add(node_id))

    def let_vote(self, node: Node) -> None:
        """Let a controller vote that runs, by the tool of its kind."""

        def is_added() -> bool:
            if node.kind is Kind.KAFKA:
                config = ("--command-config", str(node.file))
                return self._tools.attempt(_COMMAND, *config, "add-controller").code == 0
            command = ["-b", self._cluster.bootstrap, "cluster", "add-controller"]
            return main([*command, "-c", str(node.file)]) == 0

        wait_until(is_added, DEADLINE_S)

    def remove(self, node: Node) -> None:
        """Take a controller from the quorum and stop it; by the tool of the other kind."""
        if node.kind is Kind.KAFKA:
            command = ["-b", self._cluster.bootstrap, "cluster", "remove-controller"]
            assert main([*command, str(node.id)]) == 0
        else:
            self._tools.metadata_quorum(
                *("remove-controller", "--controller-id", str(node.id)),
                *("--controller-directory-id", directory_id(node.directories[0])),
            )
        wait_until(lambda: node.id not in self.voters(), DEADLINE_S)
        node.stop()
        self._cluster.remove(node)

    def voters(self) -> list[int]:
        return sorted(each.node_id for each in Operator(self._cluster).quorum().voters)
