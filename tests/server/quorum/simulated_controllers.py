"""Controllers in the simulator: real ones, on the real quorum, with snapshots of their images.

Whoever is active takes commands from within its process: a broker's registration and heartbeats,
and topics to be created, one after the other. What it answers as done is promised.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.context import ControllerContext
from dohle.metadata.image import ClusterImage
from dohle.protocol.apis import find_api
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from dohle.protocol.schema import Request
from dohle.server.net.turns import Turns
from dohle.server.quorum.controller import Controller
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.metadata_log import MetadataBatch
from dohle.server.quorum.quorum import QuorumListener
from dohle.server.quorum.raft_quorum import RaftQuorum
from dohle.server.quorum.snapshots import SnapshotId
from dohle.server.quorum.snapshotter import Snapshotter
from dohle.testing.simulation.machine import Machine, SimulatedHost
from tests.metadata.cluster import CLUSTER_ID, registration
from tests.server.quorum.scripted import create
from tests.server.quorum.simulated_quorum import Reader, SimulatedQuorum, id_of

BROKER = 9
#: Small, so that snapshots are made, and what they cover goes.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.max.retention.bytes": "4000",
}


class ControllerReader(Reader):
    """Looks at the images of a node, and commands its controller while that is active."""

    controller: Controller
    images: ImageLoader
    simulation: SimulatedControllers

    async def on_commit(self, batch: MetadataBatch) -> None:
        self.committed = batch.last_offset + 1
        self.simulation.note_image(self.images.image)

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        self.committed = snapshot.end_offset
        self.simulation.snapshots_told += 1
        self.simulation.note_image(self.images.image)

    async def lead(self, epoch: int) -> None:
        """Command until another controller is active."""
        while self.leads and self.leader.epoch == epoch and not self.simulation.is_over:
            broker = self.images.image.broker(BROKER)
            if broker is None or broker.fenced:
                await self._bring_up_broker()
            name = TopicName(f"topic-{self.simulation.next_number()}")
            answer = await self._send(create(name))
            error = ErrorCode(answer.topics[0].error_code)
            if error is ErrorCode.NONE:
                self.simulation.promised[self.images.image.offset] = name
            elif error is not ErrorCode.NOT_CONTROLLER:
                self.simulation.refusals.append(error)
            await self._heartbeat()
            await asyncio.sleep(0.05)

    async def _bring_up_broker(self) -> None:
        await self._send(registration(BROKER))
        await self._heartbeat()

    async def _heartbeat(self) -> None:
        broker = self.images.image.broker(BROKER)
        if broker is not None:
            beat = BrokerHeartbeatRequest(
                broker_id=BrokerId(BROKER),
                broker_epoch=broker.epoch,
                current_metadata_offset=self.images.image.offset,
            )
            await self._send(beat)

    async def _send(self, request: Request) -> Any:
        return await self.controller.send(request, find_api(request.API_KEY).response())


class SimulatedControllers(SimulatedQuorum):
    """Machines with a controller each."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.images: dict[int, ClusterImage] = {}
        self.refusals: list[ErrorCode] = []

    def note_image(self, image: ClusterImage) -> None:
        """Compare with what others had at the same offset."""
        if self.images.setdefault(image.offset, image) != image:
            self.problems.append(f"there are two images of offset {image.offset}")

    def listeners(
        self, machine: Machine, quorum: RaftQuorum, host: SimulatedHost, turns: Turns
    ) -> list[QuorumListener]:
        loop = asyncio.get_running_loop()
        node_id = id_of(machine)
        config, _ = BrokerConfig.from_properties(
            {**SINGLE_NODE, **SETTINGS, "node.id": str(node_id), "log.dirs": "/data"}
        )
        images = ImageLoader(turns, host.files, quorum.log)
        controller = Controller(
            *(loop, quorum, images, ControllerContext(config, CLUSTER_ID, host.rng), host.clock),
            turns=turns,
            on_fatal=self.failures.append,
        )
        snapshotter = Snapshotter(
            *(loop, host.files, quorum.log, images, config, host.clock),
            run_in_thread=host.run_in_thread,
            on_log_changed=quorum.log_changed,
        )
        images.subscribe(snapshotter.on_image)
        reader = ControllerReader(self, node_id, quorum, host)
        reader.images, reader.controller = images, controller
        self.readers[machine.name] = reader
        return [images, controller, reader]

    def check(self) -> None:
        assert self.problems == []
        assert self.failures == []
        assert self.world.errors == []
        for reader in self.running:
            assert isinstance(reader, ControllerReader)
            known = {topic.name for topic in reader.images.image.topics.values()}
            assert set(self.promised.values()) <= known
