"""Quorums of both: a controller of Apache Kafka that dohle leads, and one of ours that Kafka leads.

Kafka's nodes end themselves when they are answered what cannot be (raft.md 14), so its log and its
process are the judges.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from dohle.cli.main import main
from dohle.client.config import ClientConfig
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.core.config.listeners import Listener, SecurityProtocol
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.uuid import uuid_from_text, uuid_to_text
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from dohle.protocol.messages.add_raft_voter import Listener as Listed
from dohle.raft.membership import VoterEndpoint
from dohle.raft.values import RaftConfig, ReplicaKey
from dohle.server.host import SystemNodeHost
from dohle.server.net.listener import ConnectionLimits, ListeningSocket
from dohle.server.net.turns import Turns
from dohle.server.quorum.metadata_log import MetadataBatch, open_metadata_log
from dohle.server.quorum.quorum import LeaderAndEpoch
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.raft_quorum import RaftQuorum
from dohle.server.quorum.snapshots import SnapshotId
from dohle.storage.directory.manager import Identity, LogManager
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK
from tests.interop.waiting import wait_until
from tests.jvm.apache_kafka import ApacheKafka
from tests.jvm.jvm import Jvm
from tests.jvm.tools import Tools
from tests.ports import free_port
from tests.server.quorum.simulated_quorum import QuorumService

SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
DEADLINE_S = 60


class Mixed(NamedTuple):
    """Both nodes, and Kafka's tool for the quorum."""

    dohle: BrokerProcess
    kafka: ApacheKafka
    tools: Tools


@pytest.fixture
def mixed(classpath: str, jvm: Jvm, tmp_path: Path) -> Iterator[Mixed]:
    ours, theirs = tmp_path / "dohle", tmp_path / "kafka"
    ours.mkdir()
    theirs.mkdir()
    assert main(["storage", "format", "--data", str(ours / "data"), "--standalone"]) == 0
    controller, other = (f"127.0.0.1:{free_port()}" for _ in range(2))
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
    }
    kafka = ApacheKafka(
        classpath,
        theirs,
        {
            **QUICK,
            "process.roles": "controller",
            "node.id": "2",
            "listeners": f"CONTROLLER://{other}",
            "controller.quorum.bootstrap.servers": controller,
        },
        standalone=True,
    )
    meta = (ours / "data" / "meta.properties").read_text()
    (cluster_id,) = re.findall(r"^cluster.id=(.*)$", meta, re.M)
    kafka.format(jvm, cluster_id, "--no-initial-controllers")
    with BrokerProcess(ours, {**QUICK, **SNAPSHOTS, **listeners}) as dohle:
        tools = Tools(jvm, controller, "--bootstrap-controller")
        # So much that Kafka begins with a snapshot.
        topics = Tools(jvm, dohle.bootstrap)
        for number in range(4):
            topics.topics("--create", "--topic", f"before-{number}", "--partitions", "20")
        with kafka:
            yield Mixed(dohle, kafka, tools)
            assert "FATAL" not in kafka.log
            assert "Encountered fatal fault" not in kafka.log
        assert dohle.failures == []


def replicas(tools: Tools) -> dict[str, tuple[str, int]]:
    """Return what each node is, and how far it is behind."""
    table = tools.metadata_quorum("describe", "--replication").table
    head, *rows = table
    status, lag, node = head.index("Status"), head.index("Lag"), head.index("NodeId")
    return {row[node]: (row[status], int(row[lag])) for row in rows}


def test_a_controller_of_kafka_follows_becomes_a_voter_and_commits(mixed: Mixed) -> None:
    wait_until(lambda: replicas(mixed.tools).get("2") == ("Observer", 0), DEADLINE_S)
    config = str(mixed.kafka.properties)
    mixed.tools.metadata_quorum("--command-config", config, "add-controller")
    assert replicas(mixed.tools)["2"][0] == "Follower"
    # From now on nothing is committed without Kafka.
    topics = Tools(mixed.tools._jvm, mixed.dohle.bootstrap)
    topics.topics("--create", "--topic", "by-both", "--partitions", "3")
    wait_until(lambda: replicas(mixed.tools).get("2") == ("Follower", 0), DEADLINE_S)


class Follower:
    """A node of a quorum that only reads along, and serves other nodes."""

    def __init__(self) -> None:
        self.snapshots: list[SnapshotId] = []
        self.committed = 0
        self.leader = LeaderAndEpoch(None, -1)

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leader = leader

    async def on_commit(self, batch: MetadataBatch) -> None:
        self.committed = batch.last_offset + 1

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        self.snapshots.append(snapshot)
        self.committed = snapshot.end_offset

    def on_failure(self, reason: str) -> None:
        raise AssertionError(reason)


@asynccontextmanager
async def following(
    folder: Path, cluster_id: str, controller: str
) -> AsyncIterator[tuple[RaftQuorum, Follower, str]]:
    """Run a node that follows the quorum of a controller; its directory id comes along."""
    host, loop = SystemNodeHost(), asyncio.get_running_loop()
    config, _ = BrokerConfig.from_properties({**SINGLE_NODE, "log.dirs": str(folder)})
    folder.mkdir()
    manager = LogManager(host.files, clock=host.clock, rng=host.rng)
    manager.attach([str(folder)], Identity(cluster_id, BrokerId(7)), str(folder))
    directory = manager.metadata_directory
    assert directory is not None
    log = RaftLog(host.files, open_metadata_log(directory, config))
    turns = Turns(loop, host)
    quorum = RaftQuorum(loop, host, log, turns=turns, linger_ms=25)
    limits = ConnectionLimits(lambda: config.values, host.open_files_max)
    listening = ListeningSocket(
        loop,
        host,
        Listener("CONTROLLER", "127.0.0.1", 0, SecurityProtocol.PLAINTEXT),
        turns,
        None,
        limits,
        backlog=50,
        request_bytes_max=100 << 20,
        idle_ms_max=600_000,
    )
    follower = Follower()
    server, _, port = controller.rpartition(":")
    await quorum.start(
        RaftConfig(
            key=ReplicaKey(BrokerId(7), directory.directory_id),
            cluster_id=cluster_id,
            is_controller=True,
            endpoints=(VoterEndpoint("CONTROLLER", "127.0.0.1", listening.port),),
            bootstrap_servers=((server, int(port)),),
        ),
        [follower],
    )
    listening.start(QuorumService(quorum))
    try:
        yield quorum, follower, uuid_to_text(directory.directory_id)
    finally:
        await quorum.stop()
        listening.stop_accepting()
        listening.close()
        log.log.close()
        manager.release()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.05)


def test_a_node_of_ours_follows_kafka_with_a_snapshot_and_votes_with_it(
    classpath: str, jvm: Jvm, tmp_path: Path
) -> None:
    cluster_id = "oracle-of-the-tests-00"
    settings = {**QUICK, **SNAPSHOTS, "metadata.max.retention.bytes": "1000"}
    kafka = ApacheKafka(classpath, tmp_path, settings, standalone=True)
    kafka.format(jvm, cluster_id)
    tools = Tools(jvm, kafka.controller, "--bootstrap-controller")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        topics = Tools(jvm, kafka.bootstrap)
        create = partial(topics.topics, "--create", "--partitions", "20", "--topic")
        await loop.run_in_executor(None, create, "before")
        kept = tmp_path / "data" / "__cluster_metadata-0"
        await until(lambda: any(kept.glob("*[1-9]-*.checkpoint")))
        async with following(tmp_path / "ours", cluster_id, kafka.controller) as found:
            quorum, follower, directory_id = found
            await until(lambda: follower.committed > 0 and follower.leader.leader_id == 1)
            assert follower.snapshots
            added = await loop.run_in_executor(None, add_voter, tools, quorum, directory_id)
            assert added == ErrorCode.NONE
            await loop.run_in_executor(None, create, "by-both")
            rows = await loop.run_in_executor(None, replicas, tools)
            assert rows["7"][0] == "Follower"
            end_offset = follower.committed
            await until(lambda: follower.committed > end_offset)
        assert "Encountered fatal fault" not in kafka.log

    with kafka:
        asyncio.run(run())


def add_voter(tools: Tools, quorum: RaftQuorum, directory_id: str) -> ErrorCode:
    """Ask Kafka's leader to let our node vote, as its tool would by the node's own files."""
    driver = quorum._driver
    assert driver is not None
    (endpoint,) = driver.raft.replica.config.endpoints
    host, _, port = tools.bootstrap.rpartition(":")
    request = AddRaftVoterRequest(
        cluster_id=driver.raft.replica.config.cluster_id,
        timeout_ms=30_000,
        voter_id=7,
        voter_directory_id=uuid_from_text(directory_id),
        listeners=(Listed(name="CONTROLLER", host=endpoint.host, port=endpoint.port),),
    )

    async def send() -> ErrorCode:
        address = Address(host, int(port))
        connection = await Connection.open(address, ClientConfig(), SystemNodeHost())
        try:
            answer = await connection.request(request, AddRaftVoterResponse)
        finally:
            await connection.close()
        return ErrorCode(answer.error_code)

    return asyncio.run(send())
