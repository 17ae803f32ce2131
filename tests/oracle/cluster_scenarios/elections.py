"""Later epochs of the quorum: votes that are granted, and leaders that nobody has heard of.

A node of a later epoch than the others' has no leader to copy from, and the leader that hears of it
resigns: so this has a cluster of its own (``OWN_CLUSTER``).
"""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    ACTIVE,
    FAR,
    METADATA_ID,
    METADATA_TOPIC,
    STANDBY,
    voter_directories,
)
from tests.oracle.layout import CLUSTER_ID, LEADER, LISTENER
from tests.oracle.scenario import Client, Run

OWN_CLUSTER = True

_STRANGER, _OTHER = 9, 8
_DIRECTORY = b"strange director"
_NOWHERE = [{"name": LISTENER, "host": "localhost", "port": 9}]


class _Voter:
    """A node that is asked for its vote, and the directory that it has."""

    def __init__(self, client: Client, node: int, directory: bytes) -> None:
        self._client = client
        self._node = node
        self._directory = directory

    async def vote(self, version: int, note: str, epoch: int, **more: Any) -> None:
        """Ask it as one who has all of the log, unless told."""
        voter = {key: more.pop(key) for key in ("voter_id",) if key in more}
        partition = {
            "partition_index": 0,
            "replica_epoch": epoch,
            "replica_id": _STRANGER,
            "replica_directory_id": _DIRECTORY,
            "voter_directory_id": self._directory,
            "last_offset_epoch": epoch - 1,
            "last_offset": FAR,
            **more,
        }
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
        body = {"cluster_id": CLUSTER_ID, "voter_id": self._node, **voter, "topics": topics}
        await self._client.send("Vote", version, note=note, **body)

    async def begin(self, version: int, note: str, epoch: int, leader: int, **more: Any) -> None:
        """Tell it who leads."""
        partition = {
            "partition_index": 0,
            "voter_directory_id": self._directory,
            "leader_id": leader,
            "leader_epoch": epoch,
        }
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
        body = {"cluster_id": CLUSTER_ID, "voter_id": self._node, "topics": topics, **more}
        await self._client.send("BeginQuorumEpoch", version, note=note, **body)

    async def fetch(self, note: str, epoch: int) -> None:
        """Fetch from it."""
        partition = {"partition": 0, "current_leader_epoch": epoch, "last_fetched_epoch": epoch}
        await self._client.send(
            *("Fetch", 17),
            note=note,
            cluster_id=CLUSTER_ID,
            replica_state={"replica_id": _STRANGER},
            topics=[{"topic_id": METADATA_ID, "partitions": [partition]}],
        )


async def later_epochs(run: Run) -> None:
    """What a follower answers in epochs that it hears of first, and the leader at last (R42)."""
    ids, epoch = await voter_directories(run), run.normal.quorum_epoch
    second = _Voter(await run.client(at=STANDBY), 2, ids[2])
    for version in versions_of("Vote"):
        epoch += 10
        await _votes(second, version, epoch)
    epoch += 10
    await second.vote(2, "first a pre-vote", epoch, pre_vote=True)
    await second.vote(2, "behind, as a pre-vote", epoch, pre_vote=True, last_offset_epoch=0)
    await second.vote(2, "then a vote", epoch)
    for version, leader, more in (
        (0, 3, {}),
        (1, 3, {}),
        (1, _STRANGER, {"leader_endpoints": _NOWHERE}),
    ):
        epoch += 10
        what = f"v{version} of {leader}"
        await second.begin(version, f"new leader {leader}", epoch, leader, **more)
        await second.begin(version, f"again {leader}", epoch, leader, **more)
        await second.begin(version, f"older {leader}", epoch - 1, leader, **more)
        await second.vote(2, f"{what}: has a leader", epoch)
        await second.vote(2, f"{what}: has a leader, as a pre-vote", epoch, pre_vote=True)
        await second.fetch(f"{what}: this epoch", epoch)
        await second.fetch(f"{what}: older epoch", epoch - 1)
        await second.fetch(f"{what}: newer epoch", epoch + 1)
    first = _Voter(await run.client(at=ACTIVE), LEADER, ids[LEADER])
    await first.vote(2, "the leader resigns", epoch + 10)


async def _votes(voter: _Voter, version: int, epoch: int) -> None:
    """Ask for votes in an epoch that nobody knows yet, and in the one behind it."""
    await voter.vote(version, "behind", epoch, last_offset=0, last_offset_epoch=0)
    await voter.fetch(f"v{version}: no leader", epoch)
    await voter.fetch(f"v{version}: no leader, older epoch", epoch - 1)
    await voter.vote(version, "up to date", epoch)
    await voter.vote(version, "again", epoch)
    await voter.vote(version, "again, behind", epoch, last_offset=0, last_offset_epoch=0)
    await voter.vote(version, "again, elsewhere", epoch, replica_directory_id=b"another director")
    await voter.vote(version, "again, nowhere", epoch, replica_directory_id=bytes(16))
    await voter.vote(version, "by another", epoch, replica_id=_OTHER)
    await voter.vote(version, "older", epoch - 1)
    if version >= 2:
        await voter.vote(
            version, "by another, as a pre-vote", epoch, replica_id=_OTHER, pre_vote=True
        )
    await voter.vote(version, "newer, meant for another", epoch + 1, voter_id=_OTHER)
    await voter.vote(version, "newer", epoch + 1)
    await voter.vote(version, "negative, newer", epoch + 2, replica_id=-1)
    await voter.vote(version, "newer again", epoch + 2, replica_id=_OTHER)
