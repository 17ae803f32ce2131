"""The cluster whose answers are compared: three nodes that are brokers and controllers at once.

- The voters are in the metadata log, where scenarios can change them; unless an area is about
  those that are not (``STATIC_VOTERS``).
- Node 1 leads the quorum, since the others wait much longer before they stand for election.
- The internal topics have one partition each, whose leader is known: broker 2 coordinates
  transactions, broker 3 groups.
- Preferred leaders are elected only on demand, and a broker that a scenario plays is fenced after
  12 s of silence: later than most scenarios end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.oracle.areas import CONFIG
from tests.oracle.scenario import ANYWHERE, CONTROLLER, Client, Run, Scenario, Step, steps_of

NODES = (1, 2, 3)
LEADER = 1
TRANSACTIONS, GROUPS = 2, 3
LISTENER = "CONTROLLER"
CLUSTER_ID = "oracle-of-three-nodes0"

_ALL = {
    **CONFIG,
    "process.roles": "broker,controller",
    "controller.listener.names": LISTENER,
    "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.quorum.fetch.timeout.ms": "10000",
    "broker.session.timeout.ms": "12000",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # So that there is a snapshot to be fetched.
    "metadata.log.max.snapshot.interval.ms": "1000",
}
_ELECTION_TIMEOUT_MS = {LEADER: "300"}
_LONG_MS = "30000"


@dataclass(frozen=True, slots=True)
class Listeners:
    """Where the nodes listen: ``host:port`` by node."""

    brokers: Mapping[int, str]
    controllers: Mapping[int, str]
    #: Whether the voters are in the configuration, for ever, and not in the metadata log.
    has_static_voters: bool = False

    def properties(self, node: int) -> dict[str, str]:
        """Return the configuration of a node, but for where its data lies."""
        servers = ",".join(self.controllers.values())
        voters = ",".join(f"{id}@{address}" for id, address in self.controllers.items())
        quorum = {"controller.quorum.bootstrap.servers": servers}
        if self.has_static_voters:
            quorum = {"controller.quorum.voters": voters}
        return {
            **_ALL,
            **quorum,
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{self.brokers[node]},{LISTENER}://{self.controllers[node]}",
            "controller.quorum.election.timeout.ms": _ELECTION_TIMEOUT_MS.get(node, _LONG_MS),
        }

    @property
    def addresses(self) -> dict[str, str]:
        """All of them by the names that scenarios use."""
        return {
            ANYWHERE: self.brokers[LEADER],
            **{f"broker {node}": address for node, address in self.brokers.items()},
            **{f"{CONTROLLER} {node}": address for node, address in self.controllers.items()},
        }


async def cluster_steps_of(
    listeners: Listeners, name: str, scenario: Scenario, salt: str
) -> list[Step]:
    """Run a scenario against a cluster, and return its transcript."""

    async def prepared(run: Run) -> None:
        await prepare(run)
        await scenario(run)

    return await steps_of(listeners.addresses, name, prepared, salt)


async def prepare(run: Run) -> None:
    """Wait until all nodes serve and node 1 leads, and give the internal topics their places."""
    client = await run.client("setup", "broker 1")
    await client.until_quietly(
        *("DescribeCluster", 2, lambda r: len(r.brokers) >= len(NODES)),
        include_fenced_brokers=False,
    )
    quorum = await describe_quorum(client)
    # Epochs are told by how they differ from this one, and 0 is below the first.
    assert (quorum.leader_id, quorum.leader_epoch) == (LEADER, 1), quorum
    run.normal.quorum_epoch = quorum.leader_epoch
    for name, leader in (("__transaction_state", TRANSACTIONS), ("__consumer_offsets", GROUPS)):
        others = [node for node in NODES if node != leader]
        await _create_internal(client, name, [leader, *others])


async def describe_quorum(client: Client) -> Any:
    """Return what the active controller tells of the metadata log."""
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]

    def has_leader(response: Any) -> bool:
        return not response.error_code and response.topics[0].partitions[0].leader_id > 0

    answer = await client.until_quietly("DescribeQuorum", 2, has_leader, topics=topics)
    return answer.topics[0].partitions[0]


async def _create_internal(client: Client, name: str, replicas: list[int]) -> None:
    """Create a topic as a broker would, but on these brokers; unless it is there."""
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": replicas}],
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    await client.ask("CreateTopics", 7, timeout_ms=30_000, topics=[topic])
    await client.until_quietly(
        *("Metadata", 12, lambda r: r.topics[0].error_code == 0),
        topics=[{"name": name}],
        allow_auto_topic_creation=False,
    )
