"""What the machine wants done. The driver executes effects in the order given.

Each is completed before the next is begun, and all of them before the next event is passed to the
machine, because the order is the order of facts: a vote is on the disk (Persist) before it is
answered (Reply). Three effects are only begun and end in an event of their own: Send, SyncLog and
InstallSnapshot.

Three effects change the log at once: AppendControlBatch, AppendFetched, Truncate. When the driver
has executed the list that one of them was in, the very next event is LogChanged.
"""

from __future__ import annotations

from typing import NamedTuple

from dohle.core.errors import ErrorCode
from dohle.protocol.schema import Records, Request, Response
from dohle.raft.membership import ControlRecord
from dohle.raft.values import ElectionState, Node, OffsetAndEpoch


class Persist(NamedTuple):
    """Write ``quorum-state`` and sync it; the next effect waits for the disk (rule R10).

    Its version follows ``LogView.memberships.latest.kraft_version``. Version 0 lists the voters:
    ``Raft.voters.ids``. If it fails the node must stop.
    """

    state: ElectionState


class Send(NamedTuple):
    """Send a request; exactly one event Answered or Unanswered with this correlation id follows.

    It goes to the address of the node, in the highest version that both sides know. It may come
    while an earlier request to that node is still unanswered. The machine gives up waiting after
    ``request_timeout_ms`` by itself; whatever comes later for that correlation id it ignores.
    """

    correlation_id: int
    node: Node
    request: Request


class Reply(NamedTuple):
    """Answer the request with this token."""

    token: int
    response: Response


class ReplyWithRecords(NamedTuple):
    """Answer a Fetch, with records from an offset on in its only partition.

    The driver puts in whole batches from the log as it is now, up to ``max_bytes``, but at least
    one if there is one; none if the log ends at the offset. If they cannot be read any more
    (the log's start has passed the offset) it answers without records.
    """

    token: int
    response: Response
    offset: int
    max_bytes: int


class ReplyWithSnapshot(NamedTuple):
    """Answer a FetchSnapshot, with bytes of a snapshot file in its only partition.

    The driver puts in ``unaligned_records``: the file's bytes from the position on, at most
    ``max_bytes``. If the file is gone by now it answers SNAPSHOT_NOT_FOUND in the partition.
    """

    token: int
    response: Response
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class AppendControlBatch(NamedTuple):
    """Append one control batch of this epoch, behind whatever the leader has accepted so far.

    Batches of the state machine's records that are not written yet are written first (rule R81).
    The log's MembershipHistory takes note of it. Then LogChanged.
    """

    epoch: int
    records: tuple[ControlRecord, ...]


class AppendFetched(NamedTuple):
    """Append batches that the leader has sent, as they are, and note their control records.

    Batches are appended in order as long as they are valid (checksum), continue the log's end and
    have a leader epoch of at most ``epoch``; the rest is dropped (rule R54). Then LogChanged, even
    if nothing was appended.
    """

    records: Records
    epoch: int


class Truncate(NamedTuple):
    """Cut the log and its MembershipHistory off at an offset. Then LogChanged."""

    offset: int


class SyncLog(NamedTuple):
    """Begin to sync the log up to an offset at least; the end is the event Synced.

    The machine asks for the next one only after that, unless the epoch changed meanwhile.
    If it fails the node must stop.
    """

    end_offset: int
    epoch: int


class BeginSnapshot(NamedTuple):
    """Begin an empty part file for the download of a snapshot; an older part file is removed."""

    snapshot_id: OffsetAndEpoch


class AppendSnapshot(NamedTuple):
    """Append bytes to the part file of the snapshot that is being downloaded."""

    snapshot_id: OffsetAndEpoch
    data: Records


class DiscardSnapshot(NamedTuple):
    """Remove the part file of the snapshot that was being downloaded."""

    snapshot_id: OffsetAndEpoch


class InstallSnapshot(NamedTuple):
    """Begin to install the downloaded snapshot; the end is the event SnapshotInstalled.

    The part file is synced and renamed; then the log begins anew, empty, at the snapshot's end
    (unless the log already goes on behind it, with a batch boundary of that epoch there), older
    snapshots go, and the membership comes from it. The log changes only when the
    event is told. The machine fetches nothing until then, but may elect and answer.
    If it fails the node must stop.
    """

    snapshot_id: OffsetAndEpoch


class HighWatermarkMoved(NamedTuple):
    """Everything below the offset is committed: hand it to the state machine. It never falls."""

    offset: int


class LeaderChanged(NamedTuple):
    """Tell the state machine who leads, in the order of the effects (rule R76).

    The epoch is higher than that of the last such effect, or the leader is known now. If the node
    itself leads, ``epoch_start_offset`` is set, and the state machine is told only once it has
    taken in the commit of the batch at that offset: then it knows everything older leaders wrote.
    """

    leader_id: int | None
    epoch: int
    epoch_start_offset: int | None = None


class LeadershipLost(NamedTuple):
    """The node led this epoch and does not any more (rules R36, R78).

    Nothing more is accepted from the state machine, what is accepted and not written is dropped,
    and whoever waits for a commit is told NOT_CONTROLLER: what is written may still be committed.
    """

    epoch: int


class UpgradeDecided(NamedTuple):
    """The answer to UpgradeKraftVersion; without an error an AppendControlBatch may follow.

    If the level is there already, or is only validated, nothing is appended.
    """

    token: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class ShutdownDone(NamedTuple):
    """The driver may stop: leadership was handed over, or there was nobody to take it in time."""

    clean: bool


Effect = (
    Persist
    | Send
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshot
    | AppendControlBatch
    | AppendFetched
    | Truncate
    | SyncLog
    | BeginSnapshot
    | AppendSnapshot
    | DiscardSnapshot
    | InstallSnapshot
    | HighWatermarkMoved
    | LeaderChanged
    | LeadershipLost
    | UpgradeDecided
    | ShutdownDone
)
