"""Which replica a consumer is sent to (G30)."""

from __future__ import annotations

import pytest

from dohle.core.ids import BrokerId
from dohle.replication.read_replicas import ReadableReplica, preferred_replica


def replica(broker: int, rack: str | None, end: int = 10, caught_up_ms: int = 0) -> ReadableReplica:
    return ReadableReplica(BrokerId(broker), rack, end, caught_up_ms)


@pytest.mark.parametrize(
    ("client", "leader", "followers", "expected"),
    [
        ("a", "b", [replica(2, "a")], 2),
        ("a", None, [replica(2, "a")], 2),
        ("a", "a", [replica(2, "a", end=99)], None),
        ("", "b", [replica(2, "")], None),
        ("a", "b", [replica(2, "c"), replica(3, None)], None),
        ("a", "b", [], None),
        ("a", "b", [replica(2, "a", 9, 5), replica(3, "a", 10, 1)], 3),
        ("a", "b", [replica(3, "a", 10, 1), replica(2, "a", 10, 5)], 2),
        ("a", "b", [replica(3, "a"), replica(2, "a")], 3),
    ],
    ids=[
        "the one in the rack",
        "a leader without a rack",
        "the leader if it is in the rack, whatever others have",
        "the leader if the client has no rack",
        "the leader if nobody else is in the rack",
        "the leader if nobody else has the offset",
        "the one that has most",
        "among equals the one that was caught up last",
        "then the one with the highest id",
    ],
)
def test_g30_a_consumer_reads_from(
    client: str, leader: str | None, followers: list[ReadableReplica], expected: int | None
) -> None:
    assert preferred_replica(client, leader, followers) == expected
