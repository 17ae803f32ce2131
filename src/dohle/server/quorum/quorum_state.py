"""``quorum-state``: the last epoch that a voter has seen, on disk before the voter acts on it.

The format is Kafka's (version 0: voters without directory ids).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from dohle.core.ids import BrokerId
from dohle.server.quorum.metadata_log import CorruptMetadataLog
from dohle.storage.files import FileSystem, join, write_atomically

QUORUM_STATE = "quorum-state"
_NOBODY = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a voter must not forget."""

    leader_epoch: int
    leader_id: BrokerId = _NOBODY
    voted_id: BrokerId = _NOBODY
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
            voter_ids=tuple(
                BrokerId(int(voter["voterId"])) for voter in found.get("currentVoters") or ()
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptMetadataLog(f"{path} is damaged: {error}") from error


def write_quorum_state(fs: FileSystem, folder: str, state: QuorumState) -> None:
    """Write the state atomically, and return once it is on the disk."""
    content = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in state.voter_ids],
        "data_version": 0,
    }
    text = json.dumps(content, separators=(",", ":"))
    write_atomically(fs, join(folder, QUORUM_STATE), text.encode())
