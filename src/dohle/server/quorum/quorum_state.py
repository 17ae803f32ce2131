"""``quorum-state``: the last epoch that a voter has seen, on disk before the voter acts on it.

The format is Kafka's. Version 0 lists the voters, which the node's configuration names. Version 1
is for ``kraft.version`` 1: the log has the voters, and a vote is for a node with one directory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import ZERO_UUID, uuid_from_text, uuid_to_text
from dohle.raft.values import ElectionState, ReplicaKey
from dohle.server.quorum.metadata_log import CorruptMetadataLog
from dohle.storage.files import FileSystem, join, write_atomically

QUORUM_STATE = "quorum-state"
_NOBODY = BrokerId(-1)
_NO_DIRECTORY = uuid_to_text(ZERO_UUID)


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a voter must not forget."""

    leader_epoch: int
    leader_id: BrokerId = _NOBODY
    voted_id: BrokerId = _NOBODY
    #: Only in version 1.
    voted_directory_id: Uuid = ZERO_UUID
    #: Only in version 0.
    voter_ids: tuple[BrokerId, ...] = ()


def read_quorum_state(fs: FileSystem, folder: str) -> QuorumState | None:
    """Return the state that was written last; None if there is no file."""
    path = join(folder, QUORUM_STATE)
    if not fs.exists(path):
        return None
    try:
        found = json.loads(fs.read(path))
        return QuorumState(
            leader_epoch=int(found["leaderEpoch"]),
            leader_id=BrokerId(int(found.get("leaderId", _NOBODY))),
            voted_id=BrokerId(int(found.get("votedId", _NOBODY))),
            voted_directory_id=uuid_from_text(found.get("votedDirectoryId") or _NO_DIRECTORY),
            voter_ids=tuple(
                BrokerId(int(voter["voterId"])) for voter in found.get("currentVoters") or ()
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptMetadataLog(f"{path} is damaged: {error}") from error


def read_election_state(fs: FileSystem, folder: str) -> ElectionState | None:
    """Return the state that was written last, as the raft machine knows it."""
    found = read_quorum_state(fs, folder)
    if found is None:
        return None
    voted = None
    if found.voted_id != _NOBODY:
        voted = ReplicaKey(found.voted_id, found.voted_directory_id)
    leader_id = None if found.leader_id == _NOBODY else found.leader_id
    return ElectionState(found.leader_epoch, leader_id, voted)


def write_election_state(
    fs: FileSystem,
    folder: str,
    state: ElectionState,
    voter_ids: Sequence[BrokerId],
    *,
    kraft_version: int,
) -> None:
    """Write what the raft machine must not forget, and return once it is on the disk (R10, R11)."""
    voted = state.voted or ReplicaKey(_NOBODY)
    leader_id = _NOBODY if state.leader_id is None else state.leader_id
    content = QuorumState(state.epoch, leader_id, *voted, tuple(voter_ids))
    write_quorum_state(fs, folder, content, kraft_version=kraft_version)


def write_quorum_state(
    fs: FileSystem, folder: str, state: QuorumState, *, kraft_version: int
) -> None:
    """Write the state atomically, and return once it is on the disk."""
    content: dict[str, object] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
    }
    if kraft_version >= 1:
        content["votedDirectoryId"] = uuid_to_text(state.voted_directory_id)
        content["data_version"] = 1
    else:
        content = {"clusterId": "", **content, "appliedOffset": 0}
        content["currentVoters"] = [{"voterId": voter} for voter in state.voter_ids]
        content["data_version"] = 0
    text = json.dumps(content, separators=(",", ":"))
    write_atomically(fs, join(folder, QUORUM_STATE), text.encode())
