"""The controller's side of a node, put together: log, image, snapshots, quorum and controller.

At start the image is read from the newest snapshot and the records behind it. Then the node leads
its quorum, and the controller completes the log (``Controller.activate``) before it takes requests.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.seams import Clock
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.features import unsupported_features
from dohle.raft.membership import Voter, VoterEndpoint
from dohle.records.batch import CorruptBatch
from dohle.server.net.turns import Turns
from dohle.server.quorum.controller import Controller
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.metadata_log import CorruptMetadataLog, MetadataLog
from dohle.server.quorum.quorum import QuorumOfOne, RunInThread
from dohle.server.quorum.snapshots import BOOTSTRAP_CHECKPOINT, read_snapshot
from dohle.server.quorum.snapshotter import Snapshotter
from dohle.storage.directory.directory import LogDirectory
from dohle.storage.files import FileSystem, join


class ControllerServer:
    """The quorum and controller of a node: ``load()``, then ``lead()``, at the end ``stop()``."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        fs: FileSystem,
        directory: LogDirectory,
        context: ControllerContext,
        clock: Clock,
        *,
        turns: Turns,
        run_in_thread: RunInThread,
        on_fatal: Callable[[str], None],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._node_id = context.node_id
        self.log = MetadataLog(fs, directory, context.config, clock)
        self.images = ImageLoader(turns, fs, self.log)
        self.snapshotter = Snapshotter(
            loop, fs, self.log, self.images, context.config, clock, run_in_thread=run_in_thread
        )
        self._quorum = QuorumOfOne(
            fs,
            self.log,
            self.images.memberships,
            clock,
            turns=turns,
            run_in_thread=run_in_thread,
            on_committed=self.images.take_in,
        )
        self.controller = Controller(
            loop, self._quorum, self.images, context, turns=turns, on_fatal=on_fatal
        )

    async def load(self) -> None:
        """Load the image; nothing is written before ``lead``."""
        await self.images.load()
        problems = unsupported_features(self.images.image)
        if problems:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "; ".join(problems))

    async def lead(self, endpoints: Sequence[VoterEndpoint]) -> None:
        """Lead the quorum and activate the controller, which others reach at these addresses."""
        own = Voter(self._node_id, self._directory.directory_id, tuple(endpoints))
        await self._quorum.lead(self.images.image.epoch, own)
        await self.controller.activate(self._bootstrap_records())
        self.images.subscribe(self.snapshotter.on_image)

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
        """Take no further commands, and close the log cleanly."""
        await self.controller.close()
        await self.snapshotter.stop()
        self.log.close()
