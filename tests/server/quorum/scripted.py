"""A quorum that does what a test says, and a controller on top of it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName
from dohle.core.steps import PlainSteps
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.image import EMPTY_IMAGE, ClusterImage
from dohle.metadata.replay import apply
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import BrokerRegistrationResponse
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.record_framing import decode_metadata_record, encode_metadata_record
from dohle.protocol.schema import MetadataRecord, Request, Response
from dohle.raft.membership import Voter
from dohle.raft.values import LeaderAndEpoch
from dohle.server.net.turns import Turns
from dohle.server.quorum.controller import Controller
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.metadata_log import MetadataBatch
from dohle.server.quorum.quorum import QuorumListener, QuorumProgress, VoterProgress
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.voter_changes import VoterChange
from dohle.testing.simulation.machine import SimulatedHost
from dohle.testing.simulation.world import World
from tests.metadata.cluster import CLUSTER_ID, registration

R = TypeVar("R", bound=Response)

#: The controller under test.
OWN = BrokerId(1)
OTHER = BrokerId(2)


class ScriptedQuorum:
    """The log as its voters see it: batches are committed, and leaders change, when told to."""

    def __init__(self, voters: int = 3) -> None:
        self.leader = LeaderAndEpoch(None, 0)
        self.kraft_version = 0
        #: Why the level cannot be raised.
        self.refusal: KafkaError | None = None
        self.resigned: list[int] = []
        self.committed: list[MetadataBatch] = []
        self.appended: list[MetadataBatch] = []
        self.listeners: list[QuorumListener] = []
        self._voters = voters

    @property
    def next_offset(self) -> int:
        log = [*self.committed, *self.appended]
        return log[-1].last_offset + 1 if log else 0

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> PlainSteps[int]:
        encoded = []
        for record, version in records:
            encoded.append(decode_metadata_record(encode_metadata_record(record, version)))
            yield
        self._ensure_leads(epoch)
        return self._write(encoded)

    def _write(self, records: Sequence[MetadataRecord], *, control: bool = False) -> int:
        offset = self.next_offset + (1 if control else len(records)) - 1
        self.appended.append(MetadataBatch(records, offset, self.leader.epoch, 100))
        return offset

    async def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        self._ensure_leads(epoch)
        if self.refusal is not None:
            raise self.refusal
        if not validate_only:
            self.kraft_version = level
            self.write_control()

    async def change_voters(self, request: VoterChange, version: int) -> Response:
        raise AssertionError("nobody adds or removes voters here")

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)

    def progress(self) -> QuorumProgress:
        if self.leader.leader_id != OWN:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here")
        voter = VoterProgress(Voter(OWN, ZERO_UUID), self.next_offset, 0, 0)
        return QuorumProgress(OWN, self.leader.epoch, 0, (voter,) * self._voters)

    def _ensure_leads(self, epoch: int) -> None:
        if self.leader != (OWN, epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "not here")

    # What a test says

    def write_control(self) -> None:
        """Append something that is for the quorum itself."""
        self._write((), control=True)

    async def commit(self, count: int | None = None, *, together: bool = False) -> None:
        """Commit batches; ``together`` as one, as a leader that lingers has written them."""
        batches = self.appended[:count]
        del self.appended[: len(batches)]
        if together and batches:
            records = [record for batch in batches for record in batch.records]
            batches = [batches[-1]._replace(records=records)]
        for batch in batches:
            self.committed.append(batch)
            for listener in self.listeners:
                await listener.on_commit(batch)
        await settle()

    async def elect(self, leader_id: BrokerId | None, *, kept: int = 0) -> None:
        """Change the leader; of what was appended, the first ``kept`` batches are with the new."""
        del self.appended[kept:]
        self.leader = LeaderAndEpoch(leader_id, self.leader.epoch + 1)
        await settle()
        if leader_id == OWN:
            self.write_control()
            await self.commit()
        for listener in self.listeners:
            await listener.on_leader_change(self.leader)
        await settle()

    async def follow(self, *records: MetadataRecord) -> None:
        """Commit what another leader has written."""
        self._write(records)
        await self.commit()

    def replayed(self) -> ClusterImage:
        """Return the image of all that is committed."""
        image = EMPTY_IMAGE
        for batch in self.committed:
            image, _ = apply(image, batch.records, batch.last_offset, batch.epoch)
        return image


class Scene:
    """A controller and its quorum."""

    def __init__(
        self, host: SimulatedHost, properties: Mapping[str, str] | None = None, voters: int = 3
    ) -> None:
        self.host = host
        loop = asyncio.get_running_loop()
        turns = Turns(loop, host)
        config, _ = BrokerConfig.from_properties({**SINGLE_NODE, **(properties or {})})
        values = type(config.values)(config.values)
        values["node.id"] = OWN
        context = ControllerContext(replace(config, values=values), CLUSTER_ID, host.rng)
        self.quorum = ScriptedQuorum(voters)
        # Nothing is read from a disk here.
        self.images = ImageLoader(turns, host.files, cast(RaftLog, None))
        self.fatal: list[str] = []
        self.controller = Controller(
            *(loop, self.quorum, self.images, context, host.clock),
            turns=turns,
            on_fatal=self.fatal.append,
        )
        self.quorum.listeners += [self.images, self.controller]

    async def lead(self) -> None:
        """Make the controller active, with all that it begins with committed."""
        await self.quorum.elect(OWN)
        await self.quorum.commit()
        assert self.controller.is_active

    def begin(self, request: Request, answer: type[R]) -> asyncio.Task[R]:
        """Send a request, for which something is yet to happen."""
        return asyncio.ensure_future(self.controller.send(request, answer))

    async def send(self, request: Request, answer: type[R]) -> R:
        """Send a request, commit what it leads to, and return the response."""
        sent = self.begin(request, answer)
        await settle()
        await self.quorum.commit()
        return await sent

    async def start_broker(self, broker_id: int) -> int:
        """Register a broker and have it unfenced; return its epoch."""
        registered = await self.send(registration(broker_id), BrokerRegistrationResponse)
        assert registered.error_code == 0
        assert not (await self.heartbeat(broker_id, registered.broker_epoch)).is_fenced
        return registered.broker_epoch

    async def heartbeat(self, broker_id: int, epoch: int) -> BrokerHeartbeatResponse:
        """Send a heartbeat of a broker that has read everything."""
        return await self.send(self.beat(broker_id, epoch), BrokerHeartbeatResponse)

    def beat(self, broker_id: int, epoch: int) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=BrokerId(broker_id),
            broker_epoch=epoch,
            current_metadata_offset=self.images.image.offset,
        )

    def create(self, name: str, **fields: int) -> asyncio.Task[CreateTopicsResponse]:
        """Begin to create a topic."""
        return self.begin(create(name, **fields), CreateTopicsResponse)


def create(name: str, *, partitions: int = 1, timeout_ms: int = 60_000) -> CreateTopicsRequest:
    topic = CreatableTopic(name=TopicName(name), num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=(topic,), timeout_ms=timeout_ms)


async def settle() -> None:
    """Let everybody do what can be done now."""
    for _ in range(20):
        await asyncio.sleep(0)


def play(
    scenario: Callable[[Scene], Awaitable[None]],
    properties: Mapping[str, str] | None = None,
    *,
    voters: int = 3,
) -> None:
    """Run a scenario in virtual time."""

    async def program(host: SimulatedHost) -> None:
        scene = Scene(host, properties, voters)
        await scenario(scene)
        assert scene.images.image == scene.quorum.replayed()

    world = World(1)
    machine = world.machine("a")
    machine.start(program)
    try:
        world.run_until(lambda: not machine.is_running, within_s=100_000)
        assert world.errors == []
    finally:
        world.close()
