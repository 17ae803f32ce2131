"""Who had a vote when a controller ran last, against who has one by its configuration."""

from __future__ import annotations

import pytest

from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId
from dohle.server.quorum.quorum_state import QuorumState, write_quorum_state
from dohle.server.quorum.voter_check import refuse_other_voters
from dohle.testing.simulation.files import SimulatedFileSystem

FOLDER = "/data/1/__cluster_metadata-0"


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def disk(state: QuorumState | None, kraft_version: int = 0) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs(FOLDER)
    if state is not None:
        write_quorum_state(fs, FOLDER, state, kraft_version=kraft_version)
    return fs


@pytest.mark.parametrize(
    ("state", "kraft_version"),
    [
        (None, 0),
        (QuorumState(3, BrokerId(2), voter_ids=ids(3, 2, 1)), 0),
        (QuorumState(3, BrokerId(1)), 0),
        (QuorumState(3, BrokerId(3), BrokerId(2)), 1),
    ],
    ids=["never ran", "the same", "unknown", "in the log"],
)
def test_voters_that_the_file_does_not_contradict_are_taken(
    state: QuorumState | None, kraft_version: int
) -> None:
    refuse_other_voters(disk(state, kraft_version), FOLDER, BrokerId(1), ids(1, 2, 3))


@pytest.mark.parametrize("configured", [ids(1), ids(1, 2), ids(1, 2, 3, 4), ids(1, 2, 4)])
def test_any_other_static_voters_are_refused(configured: tuple[BrokerId, ...]) -> None:
    fs = disk(QuorumState(3, BrokerId(1), voter_ids=ids(1, 2, 3)))
    with pytest.raises(KafkaError, match="the voters of the quorum are 1, 2, 3, but the"):
        refuse_other_voters(fs, FOLDER, BrokerId(1), configured)


@pytest.mark.parametrize(
    "state", [QuorumState(3, BrokerId(2)), QuorumState(3, voted_id=BrokerId(2))]
)
def test_a_node_that_followed_another_is_not_alone_though_its_log_is_gone(
    state: QuorumState,
) -> None:
    with pytest.raises(KafkaError, match="node 2 was to lead the quorum of node 1") as refused:
        refuse_other_voters(disk(state, 1), FOLDER, BrokerId(1), ids(1))
    assert "--config FILE, its server.properties;" in refused.value.args[0]
