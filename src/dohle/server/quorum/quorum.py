"""What a controller needs from a quorum, and what a quorum tells those who read its log.

A quorum agrees on one log. The node that leads an epoch appends; what a majority of the voters has
is committed, and is told to the listeners: first the image of this node is made of it, then the
controller hears of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dohle.core.ids import BrokerId
from dohle.core.steps import PlainSteps
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.schema import Response
from dohle.raft.membership import Voter
from dohle.raft.values import LeaderAndEpoch
from dohle.server.quorum.metadata_log import MetadataBatch
from dohle.server.quorum.snapshots import SnapshotId
from dohle.server.quorum.voter_changes import VoterChange


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
    observers: tuple[VoterProgress, ...] = ()


class Quorum(Protocol):
    """The log that the controllers agree on, as one of them sees it."""

    @property
    def next_offset(self) -> int:
        """The offset of the next record that would be appended."""

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader that this node knows of; nobody in particular while there is an election."""

    @property
    def kraft_version(self) -> int:
        """The level of the quorum, as of the end of the log: it need not be committed."""

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> PlainSteps[int]:
        """Append all records or none, in one batch; return the offset of the last one.

        The records are encoded in steps. They are accepted in the last one, and the listeners are
        told of no commit before that step has returned. KafkaError NOT_CONTROLLER if this node does
        not lead that epoch any more; UnrecordableChange if a record holds what none can. After any
        exception nothing was accepted.
        """

    async def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Append the records that raise the level of the quorum; it has it from then on.

        Nothing is appended if it has the level. The caller learns that they are committed from a
        record that it appends behind them. KafkaError INVALID_UPDATE_VERSION if the level cannot be
        had, NOT_CONTROLLER if this node does not lead that epoch any more.
        """

    async def change_voters(self, request: VoterChange, version: int) -> Response:
        """Add or remove a voter as a client asks; respond when that is committed, or cannot be.

        NOT_LEADER_OR_FOLLOWER if this node does not lead.
        """

    def resign(self, epoch: int) -> None:
        """Give up the leadership of an epoch, if this node still has it."""

    def progress(self) -> QuorumProgress:
        """Return how far the voters are; NOT_LEADER_OR_FOLLOWER if this node does not lead."""


class QuorumListener(Protocol):
    """Whoever reads the log.

    Its functions are called in the order of the log, each when the one before has returned.
    """

    async def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Somebody else leads, or nobody.

        It is this node once everything before its epoch has been told as committed: it may append.
        """

    async def on_commit(self, batch: MetadataBatch) -> None:
        """A batch is committed; one for the quorum itself has no records."""

    async def on_snapshot(self, snapshot: SnapshotId) -> None:
        """Everything so far is replaced by a snapshot, which is on this node's disk."""

    def on_failure(self, reason: str) -> None:
        """The log cannot be used any more: nothing will be committed before a restart."""
