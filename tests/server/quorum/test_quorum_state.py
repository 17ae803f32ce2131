"""The file in which a voter keeps what it must not forget."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import uuid_from_text
from dohle.server.quorum.metadata_log import CorruptMetadataLog
from dohle.server.quorum.quorum_state import (
    QUORUM_STATE,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from dohle.testing.simulation.files import SimulatedFileSystem

FOLDER = "/data"
_IDS = st.integers(-1, 2**31 - 1).map(BrokerId)


def disk() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs(FOLDER)
    fs.settle()
    return fs


@given(
    st.builds(
        QuorumState,
        leader_epoch=st.integers(0, 2**31 - 1),
        leader_id=_IDS,
        voted_id=_IDS,
        voter_ids=st.lists(_IDS, max_size=5).map(tuple),
    )
)
def test_what_was_written_is_read_after_a_power_loss(state: QuorumState) -> None:
    fs = disk()
    write_quorum_state(fs, FOLDER, state, kraft_version=0)
    fs.power_loss_everything_unsynced_lost()
    assert read_quorum_state(fs, FOLDER) == state


def test_from_kraft_version_1_on_a_vote_has_a_directory_and_the_log_the_voters() -> None:
    fs = disk()
    state = QuorumState(7, BrokerId(3), BrokerId(2), Uuid(b"d" * 16))
    write_quorum_state(fs, FOLDER, state, kraft_version=1)
    assert read_quorum_state(fs, FOLDER) == state
    assert json.loads(fs.read(f"{FOLDER}/{QUORUM_STATE}")).keys() == {
        *("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version")
    }


def test_a_voter_that_has_seen_nothing_has_no_state() -> None:
    assert read_quorum_state(disk(), FOLDER) is None


def test_the_state_of_a_kafka_node_with_directory_ids_is_read() -> None:
    fs = disk()
    content = {
        "leaderId": 3,
        "leaderEpoch": 7,
        "votedId": 2,
        "votedDirectoryId": "J8aAPcfLQt2bqs1JT_rMgQ",
        "data_version": 1,
    }
    fs.put(f"{FOLDER}/{QUORUM_STATE}", json.dumps(content).encode())
    directory_id = uuid_from_text("J8aAPcfLQt2bqs1JT_rMgQ")
    assert read_quorum_state(fs, FOLDER) == QuorumState(7, BrokerId(3), BrokerId(2), directory_id)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"[]", b"{}", b'{"leaderEpoch":null}', b'{"leaderEpoch":"x"}']
)
def test_a_damaged_state_is_told_with_its_place(content: bytes) -> None:
    fs = disk()
    fs.put(f"{FOLDER}/{QUORUM_STATE}", content)
    with pytest.raises(CorruptMetadataLog, match=f"{FOLDER}/{QUORUM_STATE} is damaged"):
        read_quorum_state(fs, FOLDER)
