"""The controller of a node, on top of its part in the quorum.

Every controller reads along. The one whose node leads the quorum becomes the active one: it
completes the log before it takes requests.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import VersionedRecord
from dohle.raft.membership import VoterEndpoint
from dohle.raft.values import LeaderAndEpoch
from dohle.records.batch import CorruptBatch
from dohle.server.host import NodeHost
from dohle.server.net.turns import Turns
from dohle.server.quorum.broker_watch import BrokerWatch
from dohle.server.quorum.controller import Controller
from dohle.server.quorum.member import QuorumMember
from dohle.server.quorum.metadata_log import CorruptMetadataLog, MetadataBatch
from dohle.server.quorum.snapshots import BOOTSTRAP_CHECKPOINT, SnapshotId, read_snapshot
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.files import join


class ControllerServer:
    """``start()``, then ``stop()``."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        host: NodeHost,
        directory: LogDirectory,
        member: QuorumMember,
        context: ControllerContext,
        *,
        turns: Turns,
        on_fatal: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._fs = host.files
        self._directory = directory
        self._member = member
        self.controller = Controller(
            loop, member.quorum, member.images, context, host.clock, turns=turns, on_fatal=on_fatal
        )

    async def start(self, endpoints: Sequence[VoterEndpoint]) -> None:
        """Take part in the quorum; an only voter leads it, and its controller is active then."""
        is_only_voter = self._member.is_only_voter
        self.controller.begin_with(self._bootstrap_records())
        watch = BrokerWatch(self._member.key.id, lambda: self.controller.is_active)
        self._member.images.subscribe(watch.on_image)
        leading = _Leading(self._loop)
        await self._member.start(endpoints, (self.controller, leading))
        if is_only_voter:
            await leading.begun
            await self.controller.activated()

    def _bootstrap_records(self) -> list[VersionedRecord] | None:
        """Return the records that ``storage format`` left for a new cluster, if any."""
        path = join(self._directory.path, BOOTSTRAP_CHECKPOINT)
        try:
            return read_snapshot(self._fs, path) if self._fs.exists(path) else None
        except CorruptBatch as error:
            raise CorruptMetadataLog(
                f"{path} is damaged: {error.args[0]}. It says with what a new cluster begins: "
                "remove it for the defaults, or format the directory again"
            ) from error

    async def stop(self) -> None:
        """Take no further commands, and leave the quorum."""
        await self.controller.close()
        await self._member.stop()


class _Leading:
    """Waits until the node leads its quorum, and everything before its epoch is known."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.begun: Future[None] = loop.create_future()

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Take note: if this node is the only voter, nobody else can lead."""
        if leader.leader_id is not None and not self.begun.done():
            self.begun.set_result(None)

    async def on_commit(self, batch: MetadataBatch) -> None:
        """Wait on."""

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        """Wait on."""

    def on_failure(self, reason: str) -> None:
        """Give up."""
        if not self.begun.done():
            self.begun.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))
            # Perhaps nobody waits for it.
            self.begun.exception()
