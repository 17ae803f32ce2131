"""Parts that scenarios play themselves: brokers, and nodes of the quorum.

A broker that a scenario registers listens nowhere, but the controller takes it for one, gives it
replicas, and has it lead: so that every answer follows from what the scenario has sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.layout import CLUSTER_ID, LEADER, LISTENER, NODES, describe_quorum
from tests.oracle.scenario import CONTROLLER, Client, Run, Show, Topic

TIMEOUT = {"timeout_ms": 30_000}
#: Larger than any offset of the metadata log.
FAR = 1_000_000_000
ACTIVE = f"{CONTROLLER} {LEADER}"
STANDBY = f"{CONTROLLER} 2"
METADATA_TOPIC = "__cluster_metadata"
METADATA_ID = bytes(15) + b"\x01"
FEATURES = {
    "metadata.version": (7, 29),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}


def features(**changed: tuple[int, int] | None) -> list[dict[str, Any]]:
    """Return what a broker supports; in names ``_`` is a dot, and None leaves a feature out."""
    named = {name.replace("_", "."): levels for name, levels in changed.items()}
    return [
        {"name": name, "min_supported_version": levels[0], "max_supported_version": levels[1]}
        for name, levels in {**FEATURES, **named}.items()
        if levels is not None
    ]


def listener(name: str = "PLAINTEXT") -> dict[str, Any]:
    """Return one where nobody listens."""
    return {"name": name, "host": "localhost", "port": 9, "security_protocol": 0}


@dataclass
class Broker:
    """A broker that the scenario plays."""

    controller: Client
    id: int
    incarnation: bytes = b"incarnation 0001"
    directories: list[bytes] = field(default_factory=list)
    listeners: list[dict[str, Any]] = field(default_factory=lambda: [listener()])
    epoch: int = -1

    def __post_init__(self) -> None:
        self.directories = self.directories or [f"directory {self.id:06}".encode()]

    @property
    def who(self) -> dict[str, Any]:
        """The fields that say who it is."""
        return {"broker_id": self.id, "broker_epoch": self.epoch}

    def registration(self, **more: Any) -> dict[str, Any]:
        """Return the body of its BrokerRegistration."""
        return {
            "broker_id": self.id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": self.incarnation,
            "listeners": self.listeners,
            "features": features(),
            "rack": None,
            "log_dirs": self.directories,
            **more,
        }

    async def register(self, version: int = 4, note: str = "", **more: Any) -> Any:
        """Register, by a step."""
        answer = await self.controller.send(
            "BrokerRegistration", version, note=note, **self.registration(**more)
        )
        if not answer.error_code:
            self.epoch = answer.broker_epoch
        return answer

    async def heartbeat(self, version: int = 1, note: str = "", **more: Any) -> Any:
        """Send a heartbeat, by a step: one that has read all metadata, unless told."""
        body = {**self.who, "current_metadata_offset": FAR, **more}
        return await self.controller.send("BrokerHeartbeat", version, note=note, **body)

    async def live(self) -> None:
        """Register and be unfenced, without a step."""
        answer = await self.controller.ask("BrokerRegistration", 4, **self.registration())
        assert not answer.error_code, answer
        self.epoch = answer.broker_epoch
        answer = await self.controller.ask(
            "BrokerHeartbeat", 1, **self.who, current_metadata_offset=FAR
        )
        assert not answer.is_fenced, answer

    async def go(self) -> None:
        """Be unregistered, without a step."""
        answer = await self.controller.ask("UnregisterBroker", 0, broker_id=self.id)
        assert not answer.error_code, answer


async def live_broker(run: Run, broker_id: int, **more: Any) -> Broker:
    """Return one that is registered and unfenced."""
    broker = Broker(await run.client("setup", ACTIVE), broker_id, **more)
    await broker.live()
    return broker


async def placed_topic(
    run: Run, what: str, *replicas: list[int], seen_by: tuple[int, ...] = NODES, **configs: str
) -> Topic:
    """Create a topic on these brokers, and wait until the real ones know it; no step."""
    name = run.name(what)
    values = [{"name": key.replace("_", "."), "value": each} for key, each in configs.items()]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": each} for index, each in enumerate(replicas)
        ],
        "configs": values,
    }
    client = await run.client("setup", ACTIVE)
    response = await client.ask("CreateTopics", 7, **TIMEOUT, topics=[topic])
    assert response.topics[0].error_code == 0, response
    made = Topic(name, response.topics[0].topic_id)
    run.normal.name_topic(made.id, name)
    for node in seen_by:
        client = await run.client("setup", f"broker {node}")
        await client.until_quietly(
            *("Metadata", 12, lambda r: r.topics[0].error_code == 0),
            topics=[{"name": name}],
            allow_auto_topic_creation=False,
        )
        mine = [number for number, each in enumerate(replicas) if each[0] == node]
        asked = [{"partition_index": number, "timestamp": -2} for number in mine]
        await client.until_quietly(
            *("ListOffsets", 8, _is_without_errors),
            replica_id=-1,
            topics=[{"name": name, "partitions": asked}],
        )
    return made


def _is_without_errors(response: Any) -> bool:
    return all(not part.error_code for topic in response.topics for part in topic.partitions)


async def delete(run: Run, *topics: Topic) -> None:
    """Delete topics, without a step."""
    client = await run.client("setup", ACTIVE)
    named = [{"name": None, "topic_id": each.id} for each in topics]
    await client.ask("DeleteTopics", 6, **TIMEOUT, topics=named)


async def leaders_become(run: Run, leaders: list[int], note: str, *topics: Topic) -> None:
    """Wait until broker 1 knows the leaders of topics; what it tells of them then is a step."""

    def are_known(response: Any) -> bool:
        found = [
            (topic.name, each.partition_index, each.leader_id)
            for topic in response.topics
            for each in topic.partitions
        ]
        return [leader for _, _, leader in sorted(found)] == leaders

    await _described(run, note, are_known, *topics)


async def in_sync(run: Run, note: str, topic: Topic) -> None:
    """Wait until all replicas are in sync, as broker 1 knows it; what it tells then is a step."""

    def are_in_sync(response: Any) -> bool:
        return all(
            set(each.replica_nodes) == set(each.isr_nodes) for each in response.topics[0].partitions
        )

    await _described(run, note, are_in_sync, topic, show=_sorted_isr)


def _sorted_isr(response: Any) -> Any:
    """Leave out in which order replicas have joined."""

    def of_partition(part: Any) -> Any:
        return part.replace(isr_nodes=tuple(sorted(part.isr_nodes)))

    def of_topic(topic: Any) -> Any:
        return topic.replace(partitions=tuple(map(of_partition, topic.partitions)))

    return response.replace(topics=tuple(map(of_topic, response.topics)))


async def _described(
    run: Run, note: str, accept: Callable[[Any], bool], *topics: Topic, show: Show | None = None
) -> None:
    client = await run.client(at="broker 1")
    body: dict[str, Any] = {
        "topics": [{"name": each.name} for each in topics],
        "response_partition_limit": 100,
        "cursor": None,
    }
    await client.until_quietly("DescribeTopicPartitions", 0, accept, **body)
    # Whatever else came with that is known when what came later is known.
    later = await placed_topic(run, f"later-{len(run.steps)}", [1], seen_by=(1,))
    await client.send("DescribeTopicPartitions", 0, note=note, show=show, **body)
    await delete(run, later)


async def voter_directories(run: Run) -> dict[int, bytes]:
    """Return the directory ids of the voters."""
    quorum = await describe_quorum(await run.client("setup", "broker 1"))
    return {each.replica_id: each.replica_directory_id for each in quorum.current_voters}


def at_leader(run: Run) -> list[dict[str, Any]]:
    """Return where the leader of the quorum listens."""
    return controller_endpoint(run, ACTIVE)


def controller_endpoint(run: Run, at: str) -> list[dict[str, Any]]:
    """Return where a controller listens."""
    host, _, port = run.addresses[at].rpartition(":")
    return [{"name": LISTENER, "host": host, "port": int(port)}]
