"""What the controller needs of a quorum, and the quorum of one that there is so far.

A quorum agrees on one log. The node that leads an epoch appends; what a majority of the voters has
on the disk is committed and goes to whoever keeps an image. A node that is its own majority leads
an epoch of its own from every start on, above all that it has seen: ``quorum-state`` says so on the
disk before the log does in a LeaderChange record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from dohle.core.ids import BrokerId
from dohle.core.seams import Clock
from dohle.metadata.decision import VersionedRecord
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

        After an exception nothing is known of them: only a start can tell.
        """

    def progress(self) -> QuorumProgress:
        """Tell how far the voters are."""


class QuorumOfOne:
    """The quorum whose only voter is this node."""

    def __init__(
        self,
        fs: FileSystem,
        log: MetadataLog,
        node_id: BrokerId,
        clock: Clock,
        *,
        run_in_thread: RunInThread,
        on_committed: Callable[[MetadataBatch], Awaitable[None]],
    ) -> None:
        self._fs = fs
        self._log = log
        self._node_id = node_id
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._on_committed = on_committed
        self.epoch = -1

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log.log_end_offset

    async def lead(self, epoch_seen: int) -> None:
        """Begin an epoch above the one seen in a snapshot, and those of the log and the disk."""
        state = read_quorum_state(self._fs, self._log.folder)
        written = 0 if state is None else state.leader_epoch
        epoch = max(epoch_seen, self._log.latest_epoch, written) + 1
        # Whatever the log has is committed: there is nobody to have another opinion.
        self._log.commit(self.next_offset)
        voters = (self._node_id,)
        leading = QuorumState(epoch, leader_id=self._node_id, voter_ids=voters)
        write_quorum_state(self._fs, self._log.folder, leading)
        self.epoch = epoch
        await self._commit(self._log.append_leader_change(epoch, self._node_id, voters))

    async def append(self, records: Sequence[VersionedRecord]) -> None:
        """Append records; they count once they are on this disk."""
        await self._commit(self._log.append(records, self.epoch))

    async def _commit(self, batch: MetadataBatch) -> None:
        job = self._log.prepare_flush()
        if job is not None:
            await self._run_in_thread(job.run)
            self._log.complete_flush(job)
        self._log.commit(batch.last_offset + 1)
        await self._on_committed(batch)

    def progress(self) -> QuorumProgress:
        """Tell that the only voter has everything, and is heard of right now."""
        now_ms = self._clock.now_ms()
        voter = VoterProgress(self._node_id, self.next_offset, now_ms, now_ms)
        return QuorumProgress(self._node_id, self.epoch, self._log.log.high_watermark, (voter,))
