"""Voters in the simulator: the real driver, log and connections, without a controller on top.

Each machine runs a node of the quorum that serves nothing but the quorum. Whoever leads appends
records, one after the other, and promises those that it was told are committed.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from dohle.core.config.listeners import Listener, SecurityProtocol
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.steps import finish
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.framing import encode_response, parse_request_header
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from dohle.protocol.messages.add_raft_voter import Listener as Listed
from dohle.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from dohle.protocol.messages.records.cluster_metadata import TopicRecord
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.protocol.schema import Request, Response
from dohle.raft.membership import Membership, Voter, VoterEndpoint
from dohle.raft.values import LeaderAndEpoch, RaftConfig, ReplicaKey
from dohle.server.net.connection import Connection
from dohle.server.net.listener import ConnectionLimits, ListeningSocket
from dohle.server.net.outcome import CloseConnection, Frame
from dohle.server.net.turns import Turns
from dohle.server.quorum.metadata_log import MetadataBatch, open_metadata_log
from dohle.server.quorum.quorum import QuorumListener
from dohle.server.quorum.quorum_state import read_election_state
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.raft_quorum import RaftQuorum
from dohle.server.quorum.snapshots import (
    SnapshotId,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.directory.meta_properties import MetaProperties, write_meta_properties
from dohle.storage.files import make_dirs_durably
from dohle.storage.open_files import OpenFiles
from dohle.testing.simulation.machine import Machine, SimulatedHost
from dohle.testing.simulation.world import World

PORT = 9093
FOLDER = "/data/__cluster_metadata-0"
SERVED = (
    ApiKey.API_VERSIONS,
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
)
FEATURE = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
CONFIG, _ = BrokerConfig.from_properties({**SINGLE_NODE, "log.dirs": "/data"})


class QuorumService:
    """Serves the quorum, and nothing else."""

    def __init__(self, quorum: RaftQuorum) -> None:
        self._quorum = quorum
        self._asked: dict[Future[Any], tuple[int, int]] = {}

    def is_patient(self, api_key: int) -> bool:
        return False

    def handle(self, frame: memoryview, connection: Connection) -> Frame | Future[Any]:
        head = parse_request_header(frame)
        if head.api_key == ApiKey.API_VERSIONS:
            versions = [find_api(key).release_versions for key in SERVED]
            keys = tuple(
                ApiVersion(api_key=key, min_version=each.lowest, max_version=each.highest)
                for key, each in zip(SERVED, versions, strict=True)
            )
            response = ApiVersionsResponse(api_keys=keys, supported_features=(FEATURE,))
            return list(encode_response(response, head.version, head.correlation_id))
        request_class = find_api(head.api_key).request()
        request, _ = request_class.decode(head.version, bytes(frame), head.body_offset)
        answer = self._quorum.take(request, head.version, "CONTROLLER")
        self._asked[answer] = head.version, head.correlation_id
        return answer

    def complete(self, answered: Future[Any]) -> Frame:
        response: Response = answered.result()
        return list(encode_response(response, *self._asked.pop(answered)))

    def forget(self, future: Future[Any]) -> None:
        self._asked.pop(future, None)
        future.cancel()

    def settle(self) -> None:
        pass

    def may_settle_later(self, connection: Connection, /) -> bool:
        return False


class Reader:
    """Notes what a node is told in one life, and appends records while it leads."""

    def __init__(
        self,
        simulation: SimulatedQuorum,
        node_id: BrokerId,
        quorum: RaftQuorum,
        host: SimulatedHost,
    ) -> None:
        self.simulation = simulation
        self._node_id = node_id
        self._quorum = quorum
        self._host = host
        self.leader = LeaderAndEpoch(None, -1)
        self.committed = 0
        #: What the log says: the names of topics in their order.
        self.topics: list[TopicName] = []
        self._leading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._snapshot_end = 0

    @property
    def leads(self) -> bool:
        return self.leader.leader_id == self._node_id

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        assert leader.epoch >= self.leader.epoch
        self.leader = leader
        self._news.set()
        if self.leads:
            self.simulation.note_leader(leader)
            work = self.lead(leader.epoch)
            self._leading = asyncio.get_running_loop().create_task(work)

    async def on_commit(self, batch: MetadataBatch) -> None:
        first = batch.last_offset + 1 - (len(batch.records) or len(batch.control))
        assert first == self.committed, "nothing is left out"
        self.committed = batch.last_offset + 1
        self.topics += [each.name for each in batch.records if isinstance(each, TopicRecord)]
        self.simulation.note_commit(batch)
        self._news.set()
        every = self.simulation.snapshot_every
        if every and self.committed - self._snapshot_end >= every:
            await self._write_snapshot(SnapshotId(self.committed, batch.epoch))

    async def _write_snapshot(self, id: SnapshotId) -> None:
        """Write a snapshot, and keep nothing that it makes superfluous."""
        log = self._quorum.log
        records = [VersionedRecord(TopicRecord(name=name), 0) for name in self.topics]
        membership = log.memberships.at(id.end_offset - 1)
        write = partial(
            write_snapshot,
            self._host.files,
            log.store.path(id),
            records,
            membership,
            epoch=id.epoch,
            timestamp=0,
        )
        await self._host.run_in_thread(write)
        log.store.note(id)
        log.memberships.forget_before(id.end_offset - 1)
        log.forget_before(id)
        self._quorum.log_changed()
        self._snapshot_end = id.end_offset

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        path = self._quorum.log.store.path(snapshot)
        found = read_snapshot(self._host.files, path)
        self.topics = [each.name for each, _ in found if isinstance(each, TopicRecord)]
        self.committed = self._snapshot_end = snapshot.end_offset
        self.simulation.snapshots_told += 1
        self._news.set()

    def on_failure(self, reason: str) -> None:
        self.simulation.failures.append(reason)

    async def lead(self, epoch: int) -> None:
        """Append and wait for the commit, until another leads."""
        while self.leads and not self.simulation.is_over:
            name = TopicName(f"topic-{self.simulation.next_number()}")
            record = VersionedRecord(TopicRecord(name=name), 0)
            try:
                offset = finish(self._quorum.append(epoch, [record]))
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    self.simulation.problems.append(f"an append failed: {error}")
                return
            while self.leads and self.committed <= offset:
                self._news.clear()
                await self._news.wait()
            if self.committed > offset and self.leader.epoch == epoch:
                self.simulation.promised[offset] = name
            await asyncio.sleep(0.02)

    async def change_voters(self, request: Request) -> None:
        """Ask this node to change the voters; whatever comes of it."""
        with suppress(CloseConnection):
            answer: Any = await self._quorum.take(request, request.VERSIONS.highest, "CONTROLLER")
            self.simulation.answers[ErrorCode(answer.error_code)] += 1


class SimulatedQuorum:
    """Nodes of a quorum, and what they have said.

    At kraft.version 0 the first ``voters`` nodes vote, and the others are brokers. At 1 all are
    controllers, of which the first ``voters`` begin to vote.
    """

    def __init__(
        self, world: World, voters: int = 3, others: int = 0, *, kraft_version: int = 0
    ) -> None:
        self.world = world
        self.machines = [world.machine(f"n{id}") for id in range(1, voters + others + 1)]
        self._kraft_version = kraft_version
        self._first = self.machines[:voters]
        for machine in self.machines:
            self._format(machine)
        #: After so many offsets each node writes a snapshot; 0: never.
        self.snapshot_every = 0
        self.snapshots_told = 0
        #: What came of changes of the voters.
        self.answers: Counter[ErrorCode] = Counter()
        self.readers: dict[str, Reader] = {}
        self.quorums: dict[str, RaftQuorum] = {}
        self.failures: list[str] = []
        self.problems: list[str] = []
        #: By epoch.
        self.leaders: dict[int, BrokerId] = {}
        #: What was told as committed, by the offset of the last record: epoch and names.
        self.commits: dict[int, tuple[int, list[object]]] = {}
        #: What a leader was told is committed, by offset.
        self.promised: dict[int, TopicName] = {}
        self.is_over = False
        self._number = 0
        world.on_exit = lambda machine: None

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def note_leader(self, leader: LeaderAndEpoch) -> None:
        known = self.leaders.setdefault(leader.epoch, leader.leader_id or BrokerId(-1))
        if known != leader.leader_id:
            self.problems.append(f"epoch {leader.epoch} has two leaders")

    def note_commit(self, batch: MetadataBatch) -> None:
        names: list[object] = [getattr(record, "name", record) for record in batch.records]
        told = (batch.epoch, names)
        if self.commits.setdefault(batch.last_offset, told) != told:
            self.problems.append(f"two batches are committed at {batch.last_offset}")

    def _format(self, machine: Machine) -> None:
        """Leave what ``storage format`` does."""
        fs = machine.files
        make_dirs_durably(fs, FOLDER)
        properties = MetaProperties("cluster", id_of(machine), _directory_id(machine))
        write_meta_properties(fs, "/data", properties, 0)
        if self._kraft_version:
            voters = Membership(
                1,
                tuple(
                    Voter(id_of(each), _directory_id(each), (_endpoint(each),))
                    for each in self._first
                ),
            )
            path = snapshot_path(FOLDER, SnapshotId(0, 0))
            write_snapshot(fs, path, (), voters, epoch=0, timestamp=0)
        fs.sync_dir(FOLDER)

    def start(self, machine: Machine) -> None:
        machine.start(lambda host: self._program(machine, host))

    def listeners(
        self, machine: Machine, quorum: RaftQuorum, host: SimulatedHost, turns: Turns
    ) -> list[QuorumListener]:
        """Return who reads the log of a node."""
        reader = self.readers[machine.name] = Reader(self, id_of(machine), quorum, host)
        return [reader]

    async def _program(self, machine: Machine, host: SimulatedHost) -> None:
        node_id = id_of(machine)
        self._check_epoch(machine, host)
        loop = asyncio.get_running_loop()
        manager = LogManager(
            host.files, clock=host.clock, rng=host.rng, open_files=OpenFiles.within(64)
        )
        manager.attach(["/data"], Identity("cluster", node_id), "/data")
        directory = manager.metadata_directory
        assert directory is not None
        log = RaftLog(host.files, open_metadata_log(directory, CONFIG))
        turns = Turns(loop, host)
        quorum = RaftQuorum(loop, host, log, turns=turns, linger_ms=25)
        listener = Listener("CONTROLLER", machine.name, PORT, SecurityProtocol.PLAINTEXT)
        limits = ConnectionLimits(lambda: CONFIG.values, host.open_files_max)
        listening = ListeningSocket(
            loop,
            host,
            listener,
            turns,
            None,
            limits,
            backlog=50,
            request_bytes_max=100 << 20,
            idle_ms_max=600_000,
        )
        config = RaftConfig(
            key=ReplicaKey(node_id, directory.directory_id),
            cluster_id="cluster",
            is_controller=self._kraft_version > 0 or machine in self._first,
            endpoints=(_endpoint(machine),),
            static_voters=() if self._kraft_version else _static_voters(self._first),
            bootstrap_servers=tuple((each.name, PORT) for each in self._first),
        )
        listeners = self.listeners(machine, quorum, host, turns)
        self.quorums[machine.name] = quorum
        await quorum.start(config, listeners)
        listening.start(QuorumService(quorum))
        await host.stopping.wait()
        await quorum.stop()
        listening.stop_accepting()
        listening.close()
        log.log.close()
        manager.release()

    def _check_epoch(self, machine: Machine, host: SimulatedHost) -> None:
        """R2 of the invariants: what a node has told of an epoch was on its disk before."""
        former = self.readers.get(machine.name)
        if former is None:
            return
        found = read_election_state(host.files, FOLDER)
        epoch = -1 if found is None else found.epoch
        if epoch < former.leader.epoch:
            self.problems.append(
                f"R2: {machine.name} starts in epoch {epoch} after {former.leader.epoch}"
            )

    # Questions

    @property
    def running(self) -> list[Reader]:
        return [
            self.readers[each.name]
            for each in self.machines
            if each.is_running and each.name in self.readers
        ]

    @property
    def leader(self) -> Machine | None:
        """The machine that leads the newest epoch, and was told so."""
        epoch = max((each.leader.epoch for each in self.running), default=-1)
        for machine in self.machines:
            reader = self.readers.get(machine.name)
            if machine.is_running and reader and reader.leads and reader.leader.epoch == epoch:
                return machine
        return None

    def all_know(self, offset: int) -> bool:
        """Tell whether all machines run, and have taken in everything below an offset."""
        return len(self.running) == len(self.machines) and all(
            each.committed >= offset for each in self.running
        )

    def change_voters(self, rng: Random) -> None:
        """Ask the leader to add or remove any controller; it may refuse."""
        leader = self.leader
        if leader is None:
            return
        target = rng.choice(self.machines)
        request: Request
        if rng.random() < 0.5:
            listener = Listed(name="CONTROLLER", host=target.name, port=PORT)
            request = AddRaftVoterRequest(
                cluster_id="cluster",
                voter_id=id_of(target),
                voter_directory_id=_directory_id(target),
                listeners=(listener,),
            )
        else:
            request = RemoveRaftVoterRequest(
                cluster_id="cluster",
                voter_id=id_of(target),
                voter_directory_id=_directory_id(target),
            )
        reader = self.readers[leader.name]
        leader.loop.create_task(reader.change_voters(request))

    @property
    def voter_ids(self) -> set[int]:
        """Who votes, as the leader knows."""
        leader = self.leader
        assert leader is not None
        return {each.voter.id for each in self.quorums[leader.name].progress().voters}

    def check(self) -> None:
        assert self.problems == []
        assert self.failures == []
        assert self.world.errors == []
        if self.is_over:
            topics = [each.topics for each in self.running]
            assert all(each == topics[0] for each in topics)
            assert set(self.promised.values()) <= set(topics[0])
        for offset, name in self.promised.items():
            assert any(
                offset in range(last + 1 - len(names), last + 1)
                and names[offset - last - 1 + len(names)] == name
                for last, (_, names) in self.commits.items()
            ), f"{name} was promised at {offset}"


def id_of(machine: Machine) -> BrokerId:
    return BrokerId(int(machine.name[1:]))


def _directory_id(machine: Machine) -> Uuid:
    return Uuid(bytes([id_of(machine)]) * 16)


def _endpoint(machine: Machine) -> VoterEndpoint:
    return VoterEndpoint("CONTROLLER", machine.name, PORT)


def _static_voters(machines: Sequence[Machine]) -> tuple[Voter, ...]:
    return tuple(Voter(id_of(each), ZERO_UUID, (_endpoint(each),)) for each in machines)


def strike(quorum: SimulatedQuorum, rng: Random) -> None:
    world = quorum.world
    victim = rng.choice(quorum.machines)
    match rng.choice(("kill", "power", "pause", "cut", "one way", "start", "stop")):
        case "kill":
            victim.kill()
        case "power":
            victim.power_off(rng)
        case "pause":
            victim.pause(rng.randrange(5_000) * 1_000_000)
        case "cut" | "one way" as how:
            until_ns = world.time.now_ns + rng.randrange(8_000) * 1_000_000
            for other in quorum.machines:
                world.network.cut(victim.name, other.name, until_ns)
                if how == "cut":
                    world.network.cut(other.name, victim.name, until_ns)
        case "stop":
            victim.request_stop()
        case "start":
            start_all(quorum)


def start_all(quorum: SimulatedQuorum) -> None:
    for machine in quorum.machines:
        if not machine.is_running:
            quorum.start(machine)
