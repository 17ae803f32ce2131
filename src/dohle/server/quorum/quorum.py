"""What the controller needs from a quorum, and a quorum of one node: the only kind so far.

A quorum agrees on one log. The node that leads an epoch appends; what a majority of the voters has
on disk is committed, and is replayed into the image. A node that is the only voter leads a new
epoch after every start, higher than any it has seen: ``quorum-state`` has it on disk before the log
has its LeaderChange record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from dohle.core.ids import BrokerId
from dohle.core.seams import Clock
from dohle.metadata.decision import VersionedRecord
from dohle.server.net.turns import Slices, Turns
from dohle.server.quorum.metadata_log import MetadataBatch, MetadataLog
from dohle.server.quorum.quorum_state import (
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from dohle.storage.files import FileSystem

RunInThread = Callable[[Callable[[], None]], Awaitable[None]]


class VoterProgress(NamedTuple):
    """How far a voter is, as the leader knows it."""

    id: BrokerId
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumProgress(NamedTuple):
    """How far the quorum is."""

    leader_id: BrokerId
    epoch: int
    high_watermark: int
    voters: tuple[VoterProgress, ...]


class Quorum(Protocol):
    """The log that the controllers agree on, as the active one sees it."""

    @property
    def next_offset(self) -> int:
        """The offset of the next record that is appended."""

    async def append(self, records: Sequence[VersionedRecord]) -> None:
        """Append records as one batch; return when they are committed and in this node's image.

        After an exception it is not known whether they were written: only a restart can tell. But
        after UnrecordableChange nothing was.
        """

    def progress(self) -> QuorumProgress:
        """Return how far the voters are."""


class QuorumOfOne:
    """The quorum whose only voter is this node."""

    def __init__(
        self,
        fs: FileSystem,
        log: MetadataLog,
        node_id: BrokerId,
        clock: Clock,
        *,
        turns: Turns,
        run_in_thread: RunInThread,
        on_committed: Callable[[MetadataBatch], Awaitable[None]],
    ) -> None:
        self._fs = fs
        self._log = log
        self._node_id = node_id
        self._clock = clock
        self._turns = turns
        self._run_in_thread = run_in_thread
        self._on_committed = on_committed
        self.epoch = -1

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log.log_end_offset

    async def lead(self, epoch_seen: int) -> None:
        """Begin an epoch above ``epoch_seen`` and those of the log and of ``quorum-state``."""
        state = read_quorum_state(self._fs, self._log.folder)
        written = 0 if state is None else state.leader_epoch
        epoch = max(epoch_seen, self._log.latest_epoch, written) + 1
        # Whatever the log has is committed: there is no other voter.
        self._log.commit(self.next_offset)
        voters = (self._node_id,)
        leading = QuorumState(epoch, leader_id=self._node_id, voter_ids=voters)
        write_quorum_state(self._fs, self._log.folder, leading)
        self.epoch = epoch
        await self._commit(self._log.append_leader_change(epoch, self._node_id, voters))

    async def append(self, records: Sequence[VersionedRecord]) -> None:
        """Append records; they are committed once they are on this disk."""
        steps = self._log.append(records, self.epoch)
        await self._commit(await Slices(self._turns).run(steps))

    async def _commit(self, batch: MetadataBatch) -> None:
        job = self._log.prepare_flush()
        if job is not None:
            await self._run_in_thread(job.run)
            self._log.complete_flush(job)
        self._log.commit(batch.last_offset + 1)
        await self._on_committed(batch)

    def progress(self) -> QuorumProgress:
        """Return that the only voter has everything, and was last heard of right now."""
        now_ms = self._clock.now_ms()
        voter = VoterProgress(self._node_id, self.next_offset, now_ms, now_ms)
        return QuorumProgress(self._node_id, self.epoch, self._log.log.high_watermark, (voter,))
