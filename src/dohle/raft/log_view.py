"""What the machine reads of the log, from memory. It never writes: it asks for that by effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dohle.raft.membership import MembershipHistory
from dohle.raft.values import OffsetAndEpoch


class LogView(Protocol):
    """The metadata log and its snapshots as they are on this node.

    At the machine's start everything in it is on the disk: the driver syncs after recovery.
    """

    @property
    def start_offset(self) -> int:
        """The offset of the first record that is kept."""

    @property
    def end_offset(self) -> int:
        """The offset behind the last record that is written."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; of an empty log that of its newest snapshot; else 0."""

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        """Return the largest epoch in the log that is not above ``epoch``, and where it ends.

        As the leader-epoch cache answers: for the last epoch the log's end; below all epochs in
        the log the asked epoch and the start of the first; above all of them None.
        """

    @property
    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """The complete snapshots, oldest first. One by the formatter is 0-0."""

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size of a snapshot's file in bytes; None if there is none."""

    @property
    def memberships(self) -> MembershipHistory:
        """What the log says of its voters, from the newest snapshot to its end."""
