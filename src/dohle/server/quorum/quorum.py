"""What the controller needs from a quorum, and a quorum of one node: the only kind so far.

A quorum agrees on one log. The node that leads an epoch appends; what a majority of the voters has
on disk is committed, and is replayed into the image. A node that is the only voter leads a new
epoch after every start, higher than any it has seen: ``quorum-state`` has it on disk before the log
has its LeaderChange record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.core.seams import Clock
from dohle.core.uuid import ZERO_UUID, uuid_to_text
from dohle.metadata.decision import VersionedRecord
from dohle.raft.membership import Membership, MembershipHistory, Voter, membership_to_repeat
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
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

    voter: Voter
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

    async def upgrade_kraft_version(self, level: int) -> None:
        """Raise kraft.version, and return when that is committed; from 1 on the log has the voters.

        After an exception it is not known whether that was written.
        """

    def progress(self) -> QuorumProgress:
        """Return how far the voters are."""


class QuorumOfOne:
    """The quorum whose only voter is this node."""

    def __init__(
        self,
        fs: FileSystem,
        log: MetadataLog,
        memberships: MembershipHistory,
        clock: Clock,
        *,
        turns: Turns,
        run_in_thread: RunInThread,
        on_committed: Callable[[MetadataBatch], Awaitable[None]],
    ) -> None:
        self._fs = fs
        self._log = log
        self._memberships = memberships
        self._clock = clock
        self._turns = turns
        self._run_in_thread = run_in_thread
        self._on_committed = on_committed
        self.epoch = -1
        self._own: Voter | None = None

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log.log_end_offset

    async def lead(self, epoch_seen: int, own: Voter) -> None:
        """Begin an epoch above ``epoch_seen`` and those of the log and of ``quorum-state``.

        Raises KafkaError if the log says that this node is not the only voter.
        """
        membership = self._memberships.latest
        _ensure_only_voter(membership, own)
        state = read_quorum_state(self._fs, self._log.folder)
        written = 0 if state is None else state.leader_epoch
        epoch = max(epoch_seen, self._log.latest_epoch, written) + 1
        # Whatever the log has is committed: there is no other voter.
        self._log.commit(self.next_offset)
        voters = (own.id,)
        leading = QuorumState(epoch, leader_id=own.id, voter_ids=voters)
        folder, level = self._log.folder, membership.kraft_version
        write_quorum_state(self._fs, folder, leading, kraft_version=level)
        self.epoch, self._own = epoch, own
        repeated = membership_to_repeat(self._memberships, own)
        await self._commit(self._log.append_leader_change(epoch, own.id, voters, repeated))

    async def append(self, records: Sequence[VersionedRecord]) -> None:
        """Append records; they are committed once they are on this disk."""
        steps = self._log.append(records, self.epoch)
        await self._commit(await Slices(self._turns).run(steps))

    async def upgrade_kraft_version(self, level: int) -> None:
        """Write the level and this node as the only voter."""
        membership = Membership(level, (self._leader,))
        await self._commit(self._log.append_membership(self.epoch, membership))

    @property
    def _leader(self) -> Voter:
        assert self._own is not None, "it leads"
        return self._own

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
        leader = self._leader
        if self._memberships.latest.kraft_version < 1:
            # Voters are known by their ids alone.
            leader = replace(leader, directory_id=ZERO_UUID)
        voter = VoterProgress(leader, self.next_offset, now_ms, now_ms)
        return QuorumProgress(leader.id, self.epoch, self._log.log.high_watermark, (voter,))


def _ensure_only_voter(membership: Membership, own: Voter) -> None:
    if membership.kraft_version < 1:
        return
    if len(membership.voters) != 1 or not membership.voters[0].is_same_node(own):
        told = ", ".join(map(_named, membership.voters)) or "nobody"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"this is {_named(own)}, but the metadata log says that the voters of the quorum are: "
            f"{told}. A node is the only voter of its quorum so far, and one whose metadata "
            "directory was formatted anew is another voter: start with the directory of that id, "
            "as its meta.properties has it",
        )


def _named(voter: Voter) -> str:
    return f"node {voter.id} with directory {uuid_to_text(voter.directory_id)}"
