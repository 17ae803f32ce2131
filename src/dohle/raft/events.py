"""What the machine is told. The driver passes one event at a time to ``Raft.step``.

What an effect must be followed by is said in :mod:`dohle.raft.effects`.
"""

from __future__ import annotations

from typing import NamedTuple

from dohle.core.errors import ErrorCode
from dohle.protocol.schema import Request, Response
from dohle.raft.values import OffsetAndEpoch


class Tick(NamedTuple):
    """Time has passed. The driver sends it when ``Raft.deadline_ms`` is reached, and at start."""


class Received(NamedTuple):
    """A request of another node, already authorized.

    One of Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, AddRaftVoter,
    RemoveRaftVoter, UpdateRaftVoter. The machine answers each exactly once with a Reply effect for
    this token, at once or later. The token is any number not used before.
    """

    token: int
    request: Request
    #: The version the request came in: the response is for the same one.
    version: int
    #: The listener it came in on, in upper case.
    listener: str


class Abandoned(NamedTuple):
    """The connection of a request was closed: its answer is not needed any more."""

    token: int


class Answered(NamedTuple):
    """The response to a Send effect with this correlation id."""

    correlation_id: int
    response: Response


class Unanswered(NamedTuple):
    """There will be no response to a Send effect.

    BROKER_NOT_AVAILABLE: no connection, or it was lost. REQUEST_TIMED_OUT: no answer in time.
    UNSUPPORTED_VERSION: the peer knows no version that can carry the request (a Vote with
    ``pre_vote`` below v2). Anything else, as a failed authentication: its code.
    """

    correlation_id: int
    error: ErrorCode


class LogChanged(NamedTuple):
    """The log is another one: the LogView shows it from now on.

    Told right after each AppendControlBatch, AppendFetched and Truncate, before the next event of
    any other kind; and by a leader's driver after it has written batches of the state machine's
    records (``LogView.end_offset`` counts only what is written). Also after a snapshot was made, or
    the log's start moved. Telling it once more does no harm.
    """


class Synced(NamedTuple):
    """What a SyncLog effect asked for is on the disk. Both values are those of the effect."""

    end_offset: int
    epoch: int


class SnapshotInstalled(NamedTuple):
    """What an InstallSnapshot effect asked for is done; the LogView shows it from now on."""

    snapshot_id: OffsetAndEpoch


class Resign(NamedTuple):
    """The state machine of the leader cannot go on (rule R77). Ignored if the epoch is over."""

    epoch: int


class UpgradeKraftVersion(NamedTuple):
    """Raise kraft.version (rule R112). Answered by an UpgradeDecided effect with this token."""

    token: int
    #: The epoch in which the caller leads.
    epoch: int
    level: int
    validate_only: bool = False


class Shutdown(NamedTuple):
    """The node stops: hand over leadership if it has it. A ShutdownDone effect follows."""


Event = (
    Tick
    | Received
    | Abandoned
    | Answered
    | Unanswered
    | LogChanged
    | Synced
    | SnapshotInstalled
    | Resign
    | UpgradeKraftVersion
    | Shutdown
)
